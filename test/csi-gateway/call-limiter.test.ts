import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { CallLimiter, type CallSlot, parseMaxInFlight } from '#src/csi-gateway/call-limiter.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, startTestGateway, verdict, volumeRequest } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

const CREATE = '/csi.v1.Controller/CreateVolume';
const DELETE = '/csi.v1.Controller/DeleteVolume';

function acquire(limiter: CallLimiter, path: string): CallSlot {
  const slot = limiter.acquire(path);
  assert.ok('release' in slot);
  return slot;
}

describe('parseMaxInFlight', () => {
  it('reads a number for all methods and numbers for single ones, by name or path', () => {
    const { every, byPath } = parseMaxInFlight(['500', 'CreateVolume:50', '/vendor.v1.Extra/Do:3']);
    assert.equal(every, 500);
    assert.deepEqual(
      [...byPath],
      [
        [CREATE, 50],
        ['/vendor.v1.Extra/Do', 3],
      ],
    );
  });
  it('sets no limit for all methods without such a number', () =>
    assert.equal(parseMaxInFlight(['CreateVolume:50']).every, Infinity));
  for (const text of [
    '0',
    '-1',
    'many',
    'Create:5',
    'CreateVolume:0',
    'CreateVolume',
    'CreateVolume:5:6',
  ]) {
    it(`refuses ${text}`, () => assert.throws(() => parseMaxInFlight([text]), UsageError));
  }
});

describe('CallLimiter', () => {
  it('counts each method separately', () => {
    const limiter = new CallLimiter({
      max: { every: 2, byPath: new Map([[DELETE, 1]]) },
      adaptive: false,
      clock: systemClock,
    });
    const first = acquire(limiter, CREATE);
    acquire(limiter, CREATE);
    assert.deepEqual(limiter.acquire(CREATE), { limit: 2, why: 'max-in-flight' });
    acquire(limiter, DELETE);
    assert.deepEqual(limiter.acquire(DELETE), { limit: 1, why: 'max-in-flight' });
    first.release(Code.OK);
    acquire(limiter, CREATE);
  });

  it('reports the adaptive limit and its changes, for CSI methods only', () => {
    const reported: [string, number][] = [];
    const clock = { ...systemClock, nowMs: () => 1_000 };
    const limiter = new CallLimiter({
      max: { every: 10, byPath: new Map() },
      adaptive: true,
      clock,
      onLimit: (path, limit) => reported.push([path, limit]),
    });
    const slots = Array.from({ length: 10 }, () => acquire(limiter, CREATE));
    acquire(limiter, '/vendor.v1.Extra/Do').release(Code.Unavailable);
    for (const slot of slots) slot.release(Code.Unavailable);
    assert.deepEqual(reported[0], [CREATE, 10]);
    assert.deepEqual(reported[1], [CREATE, 7]);
    assert.ok(reported.every(([path]) => path === CREATE));
  });

  it('refuses a call above the adaptive limit and names the flag', () => {
    let nowMs = 0;
    const limiter = new CallLimiter({
      max: { every: 2, byPath: new Map() },
      adaptive: true,
      clock: { ...systemClock, nowMs: () => (nowMs += 1) },
    });
    acquire(limiter, CREATE).release(Code.ResourceExhausted);
    acquire(limiter, CREATE);
    assert.deepEqual(limiter.acquire(CREATE), { limit: 1, why: 'adaptive-limit' });
  });
});

describe('the gateway at --max-in-flight', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: SampleDriver;
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  before(async () => {
    folder = await makeFolder();
    driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('data'),
      onCall: ({ method }) =>
        method === 'CreateVolume' ? opened.then(() => undefined) : undefined,
    });
  });
  after(async () => {
    await driver.close();
    await folder.remove();
  });

  it('refuses a call above its method’s limit, not forwarded, and frees its slot', async () => {
    const test = await startTestGateway(folder, {
      maxInFlight: { every: 500, byPath: new Map([[CREATE, 3]]) },
    });
    await until(() => test.gateway.trouble === undefined, 'ready');
    const settings = { timeoutMs: 30_000 };
    const running = ['a', 'b', 'c'].map((name) =>
      test.client.createVolume(volumeRequest(name), settings),
    );
    await until(() => driver.counts.get('CreateVolume') === 3, 'three are at the driver');
    const error = await failureOf(test.client.createVolume(volumeRequest('d'), settings));
    assert.equal(error.code, Code.Unavailable);
    assert.equal(verdict(error), 'not-forwarded');
    assert.match(
      error.details,
      /3 calls of .*CreateVolume are under way, as many as --max-in-flight allows/,
    );
    assert.match(
      await test.metrics.metrics(),
      /sutler_gateway_refused_total\{reason="max-in-flight"\} 1/,
    );
    await test.client.getCapacity({}, settings);
    open();
    await Promise.all(running);
    // The refused call occupies neither a slot nor its volume.
    await Promise.all(
      ['d', 'e', 'f'].map((name) => test.client.createVolume(volumeRequest(name), settings)),
    );
    await test.close();
  });

  it('exposes the adaptive limit as a metric', async () => {
    const test = await startTestGateway(folder, {
      adaptiveLimit: true,
      maxInFlight: { every: 20, byPath: new Map() },
    });
    await until(() => test.gateway.trouble === undefined, 'ready');
    await test.client.getCapacity({}, { timeoutMs: 30_000 });
    assert.match(
      await test.metrics.metrics(),
      /sutler_gateway_adaptive_limit\{method_name="\/csi.v1.Controller\/GetCapacity"\} 20/,
    );
    await test.close();
  });
});

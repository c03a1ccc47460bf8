import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { CallLimiter, type CallSlot, parseMaxInFlight } from '#src/csi-gateway/call-limiter.ts';
import type { CallSettings } from '#src/csi/csi-calls.ts';
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
    const { every, byPath } = parseMaxInFlight(['500', 'CreateVolume:50', `${DELETE}:3`]);
    assert.equal(every, 500);
    assert.deepEqual(
      [...byPath],
      [
        [CREATE, 50],
        [DELETE, 3],
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
    '/vendor.v1.Extra/Do:3',
  ]) {
    it(`refuses ${text}`, () => assert.throws(() => parseMaxInFlight([text]), UsageError));
  }
});

describe('CallLimiter', () => {
  const { signal } = new AbortController();

  it('counts each method separately', () => {
    const limiter = new CallLimiter({ every: 2, byPath: new Map([[DELETE, 1]]) });
    const first = acquire(limiter, CREATE);
    acquire(limiter, CREATE);
    assert.deepEqual(limiter.acquire(CREATE), { limit: 2 });
    acquire(limiter, DELETE);
    assert.deepEqual(limiter.acquire(DELETE), { limit: 1 });
    first.release();
    acquire(limiter, CREATE);
  });

  it('gives a slot that comes back to the call that has waited longest, and not to a later one', async () => {
    const limiter = new CallLimiter({ every: 1, byPath: new Map() });
    const first = acquire(limiter, CREATE);
    const waiting = limiter.waitForSlot(CREATE, 10_000, signal);
    const later = limiter.waitForSlot(CREATE, 10_000, signal);
    first.release();
    assert.deepEqual(limiter.acquire(CREATE), { limit: 1 });
    assert.ok((await waiting) !== undefined);
    limiter.endWaits();
    assert.equal(await later, undefined);
  });

  it('lets no more than 1,000 calls of a method wait', async () => {
    const limiter = new CallLimiter({ every: 1, byPath: new Map() });
    acquire(limiter, CREATE);
    const waits = Array.from({ length: 1_000 }, () => limiter.waitForSlot(CREATE, 10_000, signal));
    assert.equal(await limiter.waitForSlot(CREATE, 10_000, signal), undefined);
    limiter.endWaits();
    assert.equal((await Promise.all(waits)).length, 1_000);
  });
});

describe('the gateway at --max-in-flight', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: SampleDriver;
  let open: () => void = () => undefined;
  let opened: Promise<void>;
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

  /** A gateway with three creations at the driver, as many as may be there, until `open()`. */
  async function startFullGateway() {
    opened = new Promise<void>((resolve) => (open = resolve));
    const test = await startTestGateway(folder, {
      maxInFlight: { every: 500, byPath: new Map([[CREATE, 3]]) },
    });
    await until(() => test.gateway.trouble === undefined, 'ready');
    const createsBefore = driver.counts.get('CreateVolume') ?? 0;
    const countCreates = (): number => (driver.counts.get('CreateVolume') ?? 0) - createsBefore;
    const create = (name: string, change: Partial<CallSettings> = {}) =>
      test.client.createVolume(volumeRequest(name), { timeoutMs: 30_000, ...change });
    const running = Promise.all(['a', 'b', 'c'].map((name) => create(name)));
    await until(() => countCreates() === 3, 'three are at the driver');
    const untilWaiting = (count: number): Promise<void> =>
      until(
        async () => (await test.metrics.metrics()).includes(`sutler_gateway_waiting ${count}\n`),
        `${count} calls wait`,
      );
    return { ...test, create, running, countCreates, untilWaiting };
  }

  it('lets calls above its method’s limit wait for a slot', async () => {
    const test = await startFullGateway();
    const waiting = ['d', 'e', 'f', 'g'].map((name) => test.create(name));
    await test.untilWaiting(4);
    assert.equal(test.countCreates(), 3);
    open();
    await Promise.all([test.running, ...waiting]);
    await test.untilWaiting(0);
    await test.close();
  });

  it('sends no call that was cancelled while it waited', async () => {
    const test = await startFullGateway();
    const cancelled = new AbortController();
    const waiting = failureOf(test.create('d', { signal: cancelled.signal }));
    await test.untilWaiting(1);
    cancelled.abort();
    assert.equal((await waiting).code, Code.Canceled);
    await test.untilWaiting(0);
    open();
    await test.running;
    await test.create('e');
    assert.equal(test.countCreates(), 4);
    await test.close();
  });

  it('lets no call wait beyond its sutler-not-after', async () => {
    const test = await startFullGateway();
    const error = await failureOf(test.create('d', { notAfterMs: Date.now() + 200 }));
    assert.equal(verdict(error), 'not-forwarded');
    assert.equal(error.isGatewayFull, true);
    assert.equal(test.countCreates(), 3);
    open();
    await test.running;
    await test.close();
  });

  it('refuses a second call for a volume whose first call waits', async () => {
    const test = await startFullGateway();
    const waiting = test.create('d');
    await test.untilWaiting(1);
    const error = await failureOf(test.create('d'));
    assert.equal(error.code, Code.Aborted);
    assert.equal(verdict(error), 'not-forwarded');
    open();
    await Promise.all([test.running, waiting]);
    await test.close();
  });

  it('refuses the calls that wait when it begins to drain', async () => {
    const test = await startFullGateway();
    const waiting = failureOf(test.create('d'));
    await test.untilWaiting(1);
    const closed = test.gateway.close(10_000);
    const error = await waiting;
    assert.equal(verdict(error), 'not-forwarded');
    assert.match(error.details, /shutting down/);
    open();
    await test.running;
    await closed;
    await test.close();
  });

  it('refuses a call that has waited for a tenth of its deadline, not forwarded', async () => {
    const test = await startFullGateway();
    const settings = { timeoutMs: 30_000 };
    const error = await failureOf(test.create('d', { timeoutMs: 2_000 }));
    assert.equal(error.code, Code.Unavailable);
    assert.equal(verdict(error), 'not-forwarded');
    assert.equal(error.isGatewayFull, true);
    assert.match(
      error.details,
      /the gateway is full: 3 calls of .*CreateVolume are under way, as many as --max-in-flight/,
    );
    assert.match(
      await test.metrics.metrics(),
      /sutler_gateway_refused_total\{reason="max-in-flight"\} 1/,
    );
    await test.client.getCapacity({}, settings);
    open();
    await test.running;
    // The refused call occupies neither a slot nor its volume.
    await Promise.all(['d', 'e', 'f'].map((name) => test.create(name)));
    await test.close();
  });
});

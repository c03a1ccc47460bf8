import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { after, before, beforeEach, describe, it } from 'node:test';
import { join } from 'node:path';
import { CsiClient } from '#src/gateway-client/client.ts';
import { type Gateway, startGateway } from '#src/csi-gateway/gateway.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import {
  type DriverCall,
  type SampleDriver,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { Story, type Worker } from './story.ts';
import { until } from '../harness/until.ts';

/** A driver and a gateway of this test's own, which it can stop and start again. */
describe('a driver and its gateway', () => {
  let story: Story;
  let driver: SampleDriver;
  let gateway: Gateway;
  let client: CsiClient;
  let hook: (call: DriverCall) => unknown = () => undefined;
  const file = (name: string): string => join(story.rig.dir, name);

  const startDriver = async (): Promise<void> => {
    driver = await startSampleDriver({
      socket: file('d.sock'),
      dataDir: file('d'),
      record: true,
      onCall: (call) => hook(call),
    });
  };
  const openGateway = async (): Promise<void> => {
    gateway = await startGateway({
      driver: { kind: 'unix', path: file('d.sock') },
      listen: { kind: 'unix', path: file('g.sock') },
      allowAll: false,
      probeTimeoutMs: 500,
      maxMessageBytes: 1 << 20,
      maxRequestBytes: 1 << 20,
      logMessages: false,
      clock: systemClock,
      log: silentLog,
      metrics: new Registry(),
    });
  };
  const ready = () => until(() => gateway.trouble === undefined, 'the driver is ready');
  const worker = (timeoutMs = 2_000): Worker => story.worker({ csi: client, timeoutMs });
  const handles = (): readonly string[] => driver.volumes().map(({ handle }) => handle);

  before(async () => {
    story = await Story.open();
    await startDriver();
    await openGateway();
    client = new CsiClient({ address: { kind: 'unix', path: file('g.sock') }, log: silentLog });
  });
  after(async () => {
    client.close();
    await gateway.close(0);
    await driver.close();
    await story.close();
  });
  beforeEach(async () => {
    await story.reset();
    hook = () => undefined;
    await ready();
  });

  it('cancel a call at the driver when the worker’s deadline has passed', async () => {
    const claim = await story.rig.claim();
    const cancelled: Promise<void>[] = [];
    hook = ({ method, metadata, signal }) => {
      if (method !== 'CreateVolume') return undefined;
      assert.deepEqual(metadata.get('sutler-not-after'), []);
      cancelled.push(
        new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true })),
      );
      return new Promise(() => undefined);
    };
    const startedMs = Date.now();
    assert.equal((await worker(300).reconcileClaim(claim)).kind, 'running');
    assert.ok(Date.now() - startedMs < 2_000);
    assert.equal(cancelled.length, 1);
    await cancelled[0];
    hook = () => undefined;
    await story.runUntilDone(claim, worker());
    assert.deepEqual(handles(), [(await story.rig.volumeOf(claim))?.spec.csi?.volumeHandle]);
  });

  it('end attempts at their deadlines while the driver hangs, warn once, and recover', async () => {
    const claim = await story.rig.claim();
    const before = driver.volumes().length;
    hook = ({ method }) => (method === 'CreateVolume' ? new Promise(() => undefined) : undefined);
    for (let tries = 0; tries < 3; tries += 1)
      assert.equal((await worker(100).reconcileClaim(claim)).kind, 'running');
    assert.equal(story.messages().filter((text) => text.startsWith('Warning')).length, 1);
    hook = () => undefined;
    await story.runUntilDone(claim, worker());
    assert.equal(driver.volumes().length, before + 1);
  });

  it('make one volume when the driver dies during a call and is restarted', async () => {
    const claim = await story.rig.claim();
    const before = driver.volumes().length;
    hook = async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      await proceed();
      void driver.close();
      return new Promise(() => undefined);
    };
    const outcome = await worker().reconcileClaim(claim);
    assert.ok(outcome.kind === 'retry' || outcome.kind === 'running', JSON.stringify(outcome));
    assert.ok(((await story.rig.doubtMs(claim)) ?? 0) > 0);
    await until(() => gateway.trouble !== undefined, 'the gateway notices it');
    assert.equal(
      (await worker().reconcileClaim(claim)).kind,
      'later',
      'nothing is sent to a driver that is not there',
    );
    hook = () => undefined;
    await rm(file('d.sock'), { force: true });
    await startDriver();
    await ready();
    await story.runUntilDone(claim, worker());
    assert.equal(driver.volumes().length, before + 1);
  });

  it('make one volume when the gateway dies during a call and is restarted', async () => {
    const claim = await story.rig.claim();
    const before = driver.volumes().length;
    hook = async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      await proceed();
      void gateway.close(0);
      return new Promise(() => undefined);
    };
    const outcome = await worker().reconcileClaim(claim);
    assert.ok(outcome.kind === 'retry' || outcome.kind === 'running', JSON.stringify(outcome));
    hook = () => undefined;
    assert.equal(
      (await worker(500).reconcileClaim(claim)).kind,
      'later',
      'nothing is sent without a gateway',
    );
    assert.ok(((await story.rig.doubtMs(claim)) ?? 0) > 0);
    await openGateway();
    await ready();
    await story.runUntilDone(claim, worker());
    assert.equal(driver.volumes().length, before + 1);
  });

  for (const { title, answer, reason } of [
    { title: 'no volume', answer: {}, reason: /without a volume/ },
    {
      title: 'a volume without a handle',
      answer: { volume: { capacityBytes: 1_048_576n } },
      reason: /empty volume_id/,
    },
    {
      title: 'a handle of 200 kB',
      answer: { volume: { volumeId: 'x'.repeat(200_000), capacityBytes: 1_048_576n } },
      reason: /a volume_id of 200000 bytes, more than 4096/,
    },
  ]) {
    it(`repeat the call after an answer with ${title}, and write no PV until then`, async () => {
      const claim = await story.rig.claim();
      hook = ({ method }) => (method === 'CreateVolume' ? answer : undefined);
      const outcome = await worker().reconcileClaim(claim);
      assert.ok(outcome.kind === 'retry' && reason.test(outcome.reason), JSON.stringify(outcome));
      assert.ok(((await story.rig.doubtMs(claim)) ?? 0) > 0);
      assert.equal(await story.rig.volumeOf(claim), undefined);
      hook = () => undefined;
      await story.runUntilDone(claim, worker());
      assert.ok(
        handles().includes((await story.rig.volumeOf(claim))?.spec.csi?.volumeHandle ?? ''),
      );
    });
  }

  it('delete a volume that is too small at once, and make another', async () => {
    const claim = await story.rig.claim();
    const deleted: unknown[] = [];
    hook = ({ method, request }) => {
      if (method === 'DeleteVolume') deleted.push((request as { volumeId?: unknown }).volumeId);
      return method === 'CreateVolume'
        ? { volume: { volumeId: 'small', capacityBytes: 1n } }
        : undefined;
    };
    const outcome = await worker().reconcileClaim(claim);
    assert.ok(
      outcome.kind === 'retry' && /less than requested/.test(outcome.reason),
      JSON.stringify(outcome),
    );
    assert.deepEqual(deleted, ['small']);
    assert.equal(await story.rig.doubtMs(claim), undefined, 'its absence is proven');
    hook = () => undefined;
    await story.runUntilDone(claim, worker());
    assert.ok(handles().includes((await story.rig.volumeOf(claim))?.spec.csi?.volumeHandle ?? ''));
  });
});

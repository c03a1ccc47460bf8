import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { type DataEpoch, DataEpochCheck } from '#src/records/data-epoch-check.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { openJobs } from '#src/records/open-records.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { DRIVER } from '../jobs/rig.ts';
import { Pause, Story } from './story.ts';
import { until } from '../harness/until.ts';

/** Long enough, on a busy machine too, for what a test does while a call is under way. */
const TIMING = { timeoutMs: 1_500, writeAllowanceMs: 500, settleMs: 100 };
const OWNERSHIP_MS = 2_000;

/** The leader's check of Redis' data, with a Lease in memory. */
function startLeader(story: Story): DataEpochCheck {
  let onLease: DataEpoch | undefined;
  return new DataEpochCheck({
    dataEpochs: redisDataEpochStore(story.redis, 'csi', DRIVER),
    store: {
      read: () => Promise.resolve(onLease),
      write: (next) => Promise.resolve(void (onLease = { id: next, sequence: 0, server: '' })),
    },
    quarantineMs: OWNERSHIP_MS,
    log: silentLog,
  });
}

/** Starts a creation that pauses at the driver. */
async function startCall(story: Story, claim: Claim, worker = story.worker({ timing: TIMING })) {
  const pause = new Pause();
  story.script(async ({ method }) => {
    if (method === 'CreateVolume') await pause.wait();
  });
  const run = worker.reconcileClaim(claim);
  await pause.reached;
  story.script(() => undefined);
  return { worker, run, pause };
}

describe('FLUSHALL while a call is under way and its claim is deleted', () => {
  let story: Story;
  let leader: DataEpochCheck;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(async () => {
    await story.reset();
    await story.redis.flushall();
    leader = startLeader(story);
    await leader.check();
  });

  /** Flushes Redis, which the leader notices; deletes the claim; and the worker rewrites the record
   * that it had left open. */
  async function flush(claim: Claim, worker: ReturnType<Story['worker']>): Promise<void> {
    await story.redis.flushall();
    assert.equal(await leader.check(), true);
    await story.deleteClaim(claim);
    assert.deepEqual(
      (await worker.records.rewriteLostRecords()).map(({ uid }) => uid),
      [claim.metadata.uid],
    );
    assert.ok(
      (await openJobs(story.redis, 'csi', DRIVER)).has(claim.metadata.uid),
      'ingest finds it by this list',
    );
  }

  it('writes the PV of the answer, and the rewritten record leads to its deletion', async () => {
    const claim = await story.rig.claim();
    const { worker, run, pause } = await startCall(story, claim);
    await flush(claim, worker);
    pause.resume();
    const outcome = await run;
    assert.ok(
      outcome.kind === 'later' && outcome.reason.includes('another run took over'),
      JSON.stringify(outcome),
    );
    assert.ok(await story.rig.volumeOf(claim));
    await story.runUntilDone(claim, story.worker({ timing: TIMING }));
    await story.assertNothingLeft(claim);
    assert.deepEqual(story.doubles, []);
    assert.equal(story.deletes().length, 1);
    assert.equal((await worker.records.rewriteLostRecords()).length, 0);
    assert.equal(worker.records.leftOpen, 0);
  });

  it('opens no record until that call can’t be under way any more', async () => {
    const [claim, other] = [await story.rig.claim(), await story.rig.claim()];
    const { worker, run, pause } = await startCall(story, claim);
    await flush(claim, worker);
    const second = story.worker({ timing: TIMING });
    for (const each of [claim, other]) {
      const outcome = await second.reconcileClaim(each);
      assert.ok(outcome.kind === 'later' && (outcome.delayMs ?? 0) > 0, JSON.stringify(outcome));
    }
    assert.equal(story.creates(other).length, 0);
    pause.resume();
    await run;
    await Promise.all([story.runUntilDone(claim, second), story.runUntilDone(other, second)]);
    await story.assertNothingLeft(claim);
    await story.assertOneVolume(other);
  });

  it('deletes the volume whose answer never came', async () => {
    const claim = await story.rig.claim();
    const worker = story.worker({ timing: TIMING });
    let make: () => Promise<unknown> = () => Promise.resolve();
    const pause = new Pause();
    story.script(async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      make = proceed;
      await pause.wait();
      return new Promise(() => undefined);
    });
    const run = worker.reconcileClaim(claim);
    await pause.reached;
    await flush(claim, worker);
    assert.equal((await run).kind, 'later');
    await make();
    story.script(() => undefined);
    await story.runUntilDone(claim, story.worker({ timing: TIMING }));
    await story.assertNothingLeft(claim);
    assert.equal(story.deletes().length, 1);
  });

  it('deletes the volume whose PV could not be written', async () => {
    const claim = await story.rig.claim();
    const { worker, run, pause } = await startCall(story, claim);
    story.rig.cluster.api.faults.inject({
      action: { kind: 'status', code: 500 },
      verb: 'create',
      plural: 'persistentvolumes',
    });
    await flush(claim, worker);
    pause.resume();
    assert.equal((await run).kind, 'later');
    assert.equal(await story.rig.volumeOf(claim), undefined);
    await story.runUntilDone(claim, story.worker({ timing: TIMING }));
    await story.assertNothingLeft(claim);
  });

  it('starts no deletion while a record of the volume’s creation may be lost', async () => {
    const claim = await story.rig.claim();
    await story.runUntilDone(claim);
    await story.deleteClaim(claim);
    await until(
      async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
      'the volume is released',
    );
    await story.redis.flushall();
    await leader.check();
    const worker = story.worker({ timing: TIMING });
    const volume = (await story.rig.volumeOf(claim)) as Volume;
    assert.equal((await worker.reconcileVolume(volume)).kind, 'later');
    assert.equal(story.deletes().length, 0);
    await story.runUntilDone(claim, worker);
    await story.assertNothingLeft(claim);
  });
});

describe('an older backup', () => {
  let redis: TestRedis;
  let story: Story;
  let leader: DataEpochCheck;
  let backup: string;
  before(async () => {
    redis = await startTestRedis();
    story = await Story.open(redis.redis);
    backup = await mkdtemp(join(tmpdir(), 'sutler-backup-'));
  });
  after(async () => {
    await story.close();
    await redis.close();
    await rm(backup, { recursive: true, force: true });
  });
  beforeEach(async () => {
    await story.reset();
    await redis.redis.flushall();
    leader = startLeader(story);
    await leader.check();
  });

  /** Copies Redis' files, as a backup tool does; then the leader advances the sequence. */
  async function takeBackup(): Promise<void> {
    await rm(backup, { recursive: true, force: true });
    // The server's socket stays where it is.
    await cp(redis.dataDir, backup, {
      recursive: true,
      filter: (path) => !path.endsWith('.sock'),
    });
    await leader.check();
  }

  /** Replaces Redis' files by the copy, as an operator does. */
  async function restore(): Promise<void> {
    await redis.kill();
    await rm(redis.dataDir, { recursive: true, force: true });
    await cp(backup, redis.dataDir, { recursive: true });
    await redis.start();
    await until(async () => (await redis.redis.ping()) === 'PONG', 'Redis answers');
  }

  for (const first of ['leader', 'worker'] as const) {
    it(`of Redis without a call’s record leaks nothing if the ${first} checks first`, async () => {
      const claim = await story.rig.claim();
      await takeBackup();
      let make: () => Promise<unknown> = () => Promise.resolve();
      const pause = new Pause();
      story.script(({ method, proceed }) => {
        if (method !== 'CreateVolume') return undefined;
        make = proceed;
        void pause.wait();
        return new Promise(() => undefined);
      });
      const worker = story.worker({ timing: TIMING });
      const run = worker.reconcileClaim(claim);
      await pause.reached;
      await restore();
      if (first === 'worker') await worker.records.rewriteLostRecords();
      assert.equal(await leader.check(), true, 'the sequence went back');
      await worker.records.rewriteLostRecords();
      await story.deleteClaim(claim);
      // The deadline passes and the driver creates the volume: only the rewritten record covers it.
      assert.equal((await run).kind, 'later');
      await make();
      story.script(() => undefined);
      await story.runUntilDone(claim, story.worker({ timing: TIMING }));
      await story.assertNothingLeft(claim);
      assert.equal(story.deletes().length, 1);
    });
  }

  it('of Redis with records that were closed since keeps a bound volume and no other', async () => {
    const [bound, deleted] = [await story.rig.claim(), await story.rig.claim()];
    const pause = new Pause();
    let waiting = 0;
    story.script(async ({ method }) => {
      if (method !== 'CreateVolume') return;
      waiting += 1;
      await pause.wait();
    });
    const worker = story.worker({ timing: { ...TIMING, timeoutMs: 5_000 } });
    const runs = [worker.reconcileClaim(bound), worker.reconcileClaim(deleted)];
    await until(() => waiting === 2, 'both calls are under way');
    await takeBackup();
    pause.resume();
    await Promise.all(runs);
    story.script(() => undefined);
    await story.deleteClaim(deleted);
    await story.runUntilDone(deleted);
    await story.assertNothingLeft(deleted);
    const before = await story.rig.volumeOf(bound);
    await restore();
    assert.equal((await story.record(bound))['state'], 'creating');
    assert.equal(await leader.check(), true);
    for (const claim of [bound, deleted]) await story.endOwnership(claim.metadata.uid);
    const next = story.worker({ timing: TIMING });
    await Promise.all([story.runUntilDone(bound, next), story.runUntilDone(deleted, next)]);
    await story.assertOneVolume(bound);
    await story.assertNothingLeft(deleted);
    assert.equal(story.creates(bound).length, 1);
    assert.deepEqual((await story.rig.volumeOf(bound))?.spec.csi, before?.spec.csi);
  });

  for (const { title, forget } of [
    { title: 'while the record says stored', forget: false },
    { title: 'when the record has expired', forget: true },
  ]) {
    it(`of the API server without the PV, ${title}: the same PV is created again`, async () => {
      const claim = await story.rig.claim();
      await story.runUntilDone(claim);
      const before = await story.rig.volumeOf(claim);
      if (forget) await redis.redis.del(`{csi}:volume:${DRIVER}:${claim.metadata.uid}`);
      // The claim as it was before it was bound.
      const pending = story.worker({
        timing: TIMING,
        parts: story.kubeWith({
          get: (resource, ...args) =>
            resource.plural === 'persistentvolumeclaims'
              ? Promise.resolve(claim as never)
              : story.rig.kube.get(resource, ...args),
        }),
      });
      await story.rig.kube.patch(
        volumes,
        { name: `pvc-${claim.metadata.uid}` },
        { type: 'merge', body: { metadata: { finalizers: null } } },
      );
      await story.rig.kube.delete(volumes, { name: `pvc-${claim.metadata.uid}` });
      assert.equal(await story.rig.volumeOf(claim), undefined);
      assert.equal((await pending.reconcileClaim(claim)).kind, 'done');
      const again = await story.rig.volumeOf(claim);
      assert.equal(again?.spec.csi?.volumeHandle, before?.spec.csi?.volumeHandle);
      assert.notEqual(again?.metadata.uid, before?.metadata.uid);
      await story.assertOneVolume(claim);
      assert.equal(story.creates(claim).length, 2);
    });
  }

  it('of the API server with a deleted volume’s PV: no second call deletes the PV', async () => {
    const claim = await story.rig.claim();
    await story.runUntilDone(claim);
    const before = await story.rig.volumeOf(claim);
    assert.ok(before);
    await story.deleteClaim(claim);
    await story.runUntilDone(claim);
    assert.equal(story.deletes().length, 1);
    const { uid: _, resourceVersion: __, deletionTimestamp: ___, ...metadata } = before.metadata;
    await story.rig.kube.create<Volume>(volumes, undefined, {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata,
      spec: before.spec,
    });
    await until(
      async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
      'the volume controller releases it',
    );
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
    assert.equal(story.deletes().length, 1);
  });
});

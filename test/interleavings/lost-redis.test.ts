import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { IncarnationCheck } from '#src/ingest/incarnation-check.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import { redisIncarnationStore } from '#src/records/incarnation.ts';
import { openJobs } from '#src/records/open-jobs.ts';
import { silentLog } from '#src/runtime/log.ts';
import { until } from '../harness/csi-folder.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { DRIVER } from '../jobs/rig.ts';
import { Ice, Story } from './story.ts';

/** Long enough for a busy machine to do in it what a test does while a call is out. */
const TIMING = { timeoutMs: 1_500, writeAllowanceMs: 500, settleMs: 100 };
const OWNERSHIP_MS = 2_000;

/** The leading ingest's eye on Redis; it lives through what happens to Redis, as the process does.
 */
function leader(story: Story): IncarnationCheck {
  let epoch: string | undefined;
  return new IncarnationCheck({
    incarnations: redisIncarnationStore(story.redis, 'csi', DRIVER),
    store: {
      read: () => Promise.resolve(epoch),
      write: (next) => Promise.resolve(void (epoch = next)),
    },
    ownershipMs: OWNERSHIP_MS,
    log: silentLog,
  });
}

/** A creation that stands still at the driver. */
async function callOut(story: Story, claim: Claim, worker = story.worker({ timing: TIMING })) {
  const ice = new Ice();
  story.script(async ({ method }) => {
    if (method === 'CreateVolume') await ice.freeze();
  });
  const run = worker.provision(claim);
  await ice.reached;
  story.script(() => undefined);
  return { worker, run, ice };
}

describe('FLUSHALL while a call is out and its claim is deleted', () => {
  let story: Story;
  let history: IncarnationCheck;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(async () => {
    await story.reset();
    await story.redis.flushall();
    history = leader(story);
    await history.check();
  });

  /** Flushed, noticed, claim gone, and the worker looks after what it had left open. */
  async function flush(claim: Claim, worker: ReturnType<Story['worker']>): Promise<void> {
    await story.redis.flushall();
    assert.equal(await history.check(), true);
    await story.deleteClaim(claim);
    assert.deepEqual(
      (await worker.records.rewriteLostRecords()).map(({ uid }) => uid),
      [claim.metadata.uid],
    );
    assert.ok(
      (await openJobs(story.redis, 'csi', DRIVER)).has(claim.metadata.uid),
      'ingest can’t enqueue what is not listed',
    );
  }

  it('writes the PV of the answer, and the record that tend() wrote again sees to its end', async () => {
    const claim = await story.rig.claim();
    const { worker, run, ice } = await callOut(story, claim);
    await flush(claim, worker);
    ice.thaw();
    const outcome = await run;
    assert.ok(
      outcome.kind === 'later' && outcome.reason.includes('taken over'),
      JSON.stringify(outcome),
    );
    assert.ok(await story.rig.volumeOf(claim));
    await story.settle(claim, story.worker({ timing: TIMING }));
    await story.assertNothingLeft(claim);
    assert.deepEqual(story.doubles, []);
    assert.equal(story.deletes().length, 1);
    assert.equal((await worker.records.rewriteLostRecords()).length, 0);
    assert.equal(worker.records.leftOpen, 0);
  });

  it('opens nothing for the claim, nor for any other, until that call can’t be under way any more', async () => {
    const [claim, other] = [await story.rig.claim(), await story.rig.claim()];
    const { worker, run, ice } = await callOut(story, claim);
    await flush(claim, worker);
    const second = story.worker({ timing: TIMING });
    for (const each of [claim, other]) {
      const outcome = await second.provision(each);
      assert.ok(outcome.kind === 'later' && (outcome.delayMs ?? 0) > 0, JSON.stringify(outcome));
    }
    assert.equal(story.creates(other).length, 0);
    ice.thaw();
    await run;
    await Promise.all([story.settle(claim, second), story.settle(other, second)]);
    await story.assertNothingLeft(claim);
    await story.assertOneVolume(other);
  });

  it('finds the volume whose answer never came', async () => {
    const claim = await story.rig.claim();
    const worker = story.worker({ timing: TIMING });
    let make: () => Promise<unknown> = () => Promise.resolve();
    const ice = new Ice();
    story.script(async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      make = proceed;
      await ice.freeze();
      return new Promise(() => undefined);
    });
    const run = worker.provision(claim);
    await ice.reached;
    await flush(claim, worker);
    assert.equal((await run).kind, 'later');
    await make();
    story.script(() => undefined);
    await story.settle(claim, story.worker({ timing: TIMING }));
    await story.assertNothingLeft(claim);
    assert.equal(story.deletes().length, 1);
  });

  it('finds the volume whose PV could not be written', async () => {
    const claim = await story.rig.claim();
    const { worker, run, ice } = await callOut(story, claim);
    story.rig.cluster.api.faults.inject({
      action: { kind: 'status', code: 500 },
      verb: 'create',
      plural: 'persistentvolumes',
    });
    await flush(claim, worker);
    ice.thaw();
    assert.equal((await run).kind, 'later');
    assert.equal(await story.rig.volumeOf(claim), undefined);
    await story.settle(claim, story.worker({ timing: TIMING }));
    await story.assertNothingLeft(claim);
  });

  it('starts no deletion of a volume whose creation it may have forgotten', async () => {
    const claim = await story.rig.claim();
    await story.settle(claim);
    await story.deleteClaim(claim);
    await until(
      'the volume is released',
      async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
    );
    await story.redis.flushall();
    await history.check();
    const worker = story.worker({ timing: TIMING });
    const volume = (await story.rig.volumeOf(claim)) as Volume;
    assert.equal((await worker.remove(volume)).kind, 'later');
    assert.equal(story.deletes().length, 0);
    await story.settle(claim, worker);
    await story.assertNothingLeft(claim);
  });
});

describe('an older backup', () => {
  let redis: TestRedis;
  let story: Story;
  let history: IncarnationCheck;
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
    history = leader(story);
    await history.check();
  });

  /** A copy of Redis' files, as a backup tool makes it; the leader counts on. */
  async function takeBackup(): Promise<void> {
    await rm(backup, { recursive: true, force: true });
    await cp(redis.dataDir, backup, { recursive: true });
    await history.check();
  }

  /** The operator puts the copy in place of what there was. */
  async function restore(): Promise<void> {
    await redis.kill();
    await rm(redis.dataDir, { recursive: true, force: true });
    await cp(backup, redis.dataDir, { recursive: true });
    await redis.start();
    await until('Redis answers', async () => (await redis.redis.ping()) === 'PONG');
  }

  for (const first of ['leader', 'worker'] as const) {
    it(`of Redis, without the record of a call that is out, loses no volume when the ${first} looks first`, async () => {
      const claim = await story.rig.claim();
      await takeBackup();
      let make: () => Promise<unknown> = () => Promise.resolve();
      const ice = new Ice();
      story.script(({ method, proceed }) => {
        if (method !== 'CreateVolume') return undefined;
        make = proceed;
        void ice.freeze();
        return new Promise(() => undefined);
      });
      const worker = story.worker({ timing: TIMING });
      const run = worker.provision(claim);
      await ice.reached;
      await restore();
      if (first === 'worker') await worker.records.rewriteLostRecords();
      assert.equal(await history.check(), true, 'the beat went back');
      await worker.records.rewriteLostRecords();
      await story.deleteClaim(claim);
      // The deadline passes, the driver ends its work, and only the record that was written again
      // knows of the volume.
      assert.equal((await run).kind, 'later');
      await make();
      story.script(() => undefined);
      await story.settle(claim, story.worker({ timing: TIMING }));
      await story.assertNothingLeft(claim);
      assert.equal(story.deletes().length, 1);
    });
  }

  it('of Redis, with records that were closed since: a bound volume is left in peace, a deleted one leaves nothing', async () => {
    const [bound, deleted] = [await story.rig.claim(), await story.rig.claim()];
    const ice = new Ice();
    let waiting = 0;
    story.script(async ({ method }) => {
      if (method !== 'CreateVolume') return;
      waiting += 1;
      await ice.freeze();
    });
    const worker = story.worker({ timing: { ...TIMING, timeoutMs: 5_000 } });
    const runs = [worker.provision(bound), worker.provision(deleted)];
    await until('both calls are out', () => waiting === 2);
    await takeBackup();
    ice.thaw();
    await Promise.all(runs);
    story.script(() => undefined);
    await story.deleteClaim(deleted);
    await story.settle(deleted);
    await story.assertNothingLeft(deleted);
    const before = await story.rig.volumeOf(bound);
    await restore();
    assert.equal((await story.record(bound))['state'], 'creating');
    assert.equal(await history.check(), true);
    for (const claim of [bound, deleted]) await story.endOwnership(claim.metadata.uid);
    const next = story.worker({ timing: TIMING });
    await Promise.all([story.settle(bound, next), story.settle(deleted, next)]);
    await story.assertOneVolume(bound);
    await story.assertNothingLeft(deleted);
    assert.equal(story.creates(bound).length, 1);
    assert.deepEqual((await story.rig.volumeOf(bound))?.spec.csi, before?.spec.csi);
  });

  for (const { title, forget } of [
    { title: 'while the record says stored', forget: false },
    { title: 'when the record has expired', forget: true },
  ]) {
    it(`of the API server, without the PV, ${title}: it is made again under the same name for the same volume`, async () => {
      const claim = await story.rig.claim();
      await story.settle(claim);
      const before = await story.rig.volumeOf(claim);
      if (forget) await redis.redis.del(`{csi}:volume:${DRIVER}:${claim.metadata.uid}`);
      // As it was before the PV came: the claim is pending and knows of no volume.
      const pending = story.worker({
        timing: TIMING,
        ports: story.kubeWith({
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
      assert.equal((await pending.provision(claim)).kind, 'done');
      const again = await story.rig.volumeOf(claim);
      assert.equal(again?.spec.csi?.volumeHandle, before?.spec.csi?.volumeHandle);
      assert.notEqual(again?.metadata.uid, before?.metadata.uid);
      await story.assertOneVolume(claim);
      assert.equal(story.creates(claim).length, 2);
    });
  }

  it('of the API server, with the PV of a volume that was deleted: the PV goes without a second call', async () => {
    const claim = await story.rig.claim();
    await story.settle(claim);
    const before = await story.rig.volumeOf(claim);
    assert.ok(before);
    await story.deleteClaim(claim);
    await story.settle(claim);
    assert.equal(story.deletes().length, 1);
    const { uid: _, resourceVersion: __, deletionTimestamp: ___, ...metadata } = before.metadata;
    await story.rig.kube.create<Volume>(volumes, undefined, {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata,
      spec: before.spec,
    });
    await until(
      'the volume controller releases it',
      async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
    );
    await story.settle(claim);
    await story.assertNothingLeft(claim);
    assert.equal(story.deletes().length, 1);
  });
});

import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { Pause, Story, type Timing } from './story.ts';
import { until } from '../harness/until.ts';

/* A worker pauses at a given place, as after SIGSTOP or during a long pause of its machine, while
 * other workers create, bind and delete the volume. */
describe('a worker that was frozen', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  /** Records that pause before a creation or a deletion is opened. */
  const pausedBeforeOpen = (pause: Pause) =>
    class extends VolumeRecords {
      override async openCreate(
        ...args: Parameters<VolumeRecords['openCreate']>
      ): ReturnType<VolumeRecords['openCreate']> {
        await pause.wait();
        return super.openCreate(...args);
      }
      override async openDelete(
        ...args: Parameters<VolumeRecords['openDelete']>
      ): ReturnType<VolumeRecords['openDelete']> {
        await pause.wait();
        return super.openDelete(...args);
      }
    };

  /** Another worker creates and binds the volume, and deletes it with its claim. */
  async function createAndDelete(claim: Claim): Promise<void> {
    await story.runUntilDone(claim);
    await story.assertOneVolume(claim);
    await story.deleteClaim(claim);
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
  }

  it('before it opened the record makes no second volume after the first is deleted', async () => {
    const claim = await story.rig.claim();
    const pause = new Pause();
    const frozen = story.worker({ records: pausedBeforeOpen(pause) }).reconcileClaim(claim);
    await pause.reached;
    await createAndDelete(claim);
    pause.resume();
    const outcome = await frozen;
    assert.ok(
      outcome.kind === 'later' && outcome.reason.includes('was deleted'),
      JSON.stringify(outcome),
    );
    assert.equal(story.creates(claim).length, 1);
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
    assert.equal(story.deletes().length, 1);
  });

  it('before it opened the record, past its deadline for sending, sends nothing', async () => {
    const claim = await story.rig.claim();
    const pause = new Pause();
    const frozen = story
      .worker({ records: pausedBeforeOpen(pause), timing: { writeAllowanceMs: 30 } })
      .reconcileClaim(claim);
    await pause.reached;
    await systemClock.sleep(60);
    pause.resume();
    assert.equal((await frozen).kind, 'running');
    assert.equal(story.creates(claim).length, 0);
    assert.deepEqual(await story.rig.record(claim.metadata.uid), {});
    await story.runUntilDone(claim);
    await story.assertOneVolume(claim);
  });

  it('before it opened the record sends nothing after the record was forgotten', async () => {
    const claim = await story.rig.claim();
    const pause = new Pause();
    const parts = story.kubeWith({
      get: async (resource, ...args) => {
        const read = await story.rig.kube.get(resource, ...args);
        await pause.wait();
        return read as never;
      },
    });
    const timing = { timeoutMs: 50, writeAllowanceMs: 50 };
    const frozen = story.worker({ parts, timing }).reconcileClaim(claim);
    await pause.reached;
    await createAndDelete(claim);
    await story.redis.del(`{csi}:volume:sample.csi.sutler.dev:${claim.metadata.uid}`);
    await systemClock.sleep(110);
    pause.resume();
    assert.equal((await frozen).kind, 'running');
    assert.equal(story.creates(claim).length, 1);
    await story.assertNothingLeft(claim);
  });

  it('between open and call sends nothing after it was taken over', async () => {
    const claim = await story.rig.claim();
    const pause = new Pause();
    const { csi } = story.rig.parts;
    const parts = story.csiWith({
      createVolume: async (...args) => {
        await pause.wait();
        return csi.createVolume(...args);
      },
    });
    const frozen = story
      .worker({ parts, timing: { timeoutMs: 20, writeAllowanceMs: 30 } })
      .reconcileClaim(claim);
    await pause.reached;
    await systemClock.sleep(80);
    await createAndDelete(claim);
    pause.resume();
    const outcome = await frozen;
    assert.ok(
      outcome.kind === 'later' && outcome.reason.includes('another run took over'),
      JSON.stringify(outcome),
    );
    assert.equal(story.creates(claim).length, 1);
    assert.deepEqual((await story.rig.record(claim.metadata.uid))['state'], 'gone');
    await story.assertNothingLeft(claim);
  });

  it('between answer and PV leaves no PV of a deleted volume', async () => {
    const claim = await story.rig.claim();
    const pause = new Pause();
    const parts = story.kubeWith({
      create: async (...args) => {
        await pause.wait();
        return story.rig.kube.create(...args);
      },
    });
    const frozen = story.worker({ parts }).reconcileClaim(claim);
    await pause.reached;
    await story.endOwnership(claim.metadata.uid);
    await createAndDelete(claim);
    pause.resume();
    // It has an answer, so it writes the PV, of a deleted volume for a deleted claim.
    assert.equal((await frozen).kind, 'later');
    assert.ok(await story.rig.volumeOf(claim));
    await until(
      async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
      'the volume controller releases it',
    );
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
    assert.equal(story.deletes().length, 1);
  });

  it('before it sent a deletion sends nothing after another worker has deleted', async () => {
    const claim = await story.rig.claim();
    await story.runUntilDone(claim);
    await story.deleteClaim(claim);
    await until(
      async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
      'the volume is released',
    );
    const volume = (await story.rig.volumeOf(claim)) as Volume;
    const [beforeOpen, beforeCall] = [new Pause(), new Pause()];
    const early = story.worker({ records: pausedBeforeOpen(beforeOpen) }).reconcileVolume(volume);
    await beforeOpen.reached;
    const { csi } = story.rig.parts;
    const parts = story.csiWith({
      deleteVolume: async (...args) => {
        await beforeCall.wait();
        return csi.deleteVolume(...args);
      },
    });
    const late = story
      .worker({ parts, timing: { timeoutMs: 20, writeAllowanceMs: 30 } })
      .reconcileVolume(volume);
    await beforeCall.reached;
    await systemClock.sleep(80);
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
    beforeOpen.resume();
    beforeCall.resume();
    assert.equal((await early).kind, 'done');
    assert.equal((await late).kind, 'later');
    assert.equal(story.deletes().length, 1);
  });
});

describe('a PV that is being deleted', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  const KEEP = 'example.com/keep';

  /** Creates a PV of the claim's name that is being deleted, until the returned function is called.
   */
  async function createDeletedPv(claim: Claim): Promise<() => Promise<unknown>> {
    const { kube } = story.rig;
    const name = `pvc-${claim.metadata.uid}`;
    const spec = {
      capacity: { storage: '1Mi' },
      accessModes: ['ReadWriteOnce'],
      csi: { driver: 'other', volumeHandle: 'foreign' },
    };
    await kube.create<Volume>(volumes, undefined, {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name, finalizers: [KEEP] },
      spec,
    });
    await kube.delete(volumes, { name });
    return () =>
      kube.patch(volumes, { name }, { type: 'merge', body: { metadata: { finalizers: null } } });
  }

  it('of the new PV’s name delays the creation, which keeps its answer', async () => {
    const claim = await story.rig.claim();
    const removeFinalizer = await createDeletedPv(claim);
    const worker = story.worker();
    const outcome = await worker.reconcileClaim(claim);
    assert.ok(
      outcome.kind === 'later' && outcome.reason.includes('being deleted'),
      JSON.stringify(outcome),
    );
    assert.equal((await worker.reconcileClaim(claim)).kind, 'later');
    assert.equal(story.deletes().length, 0, 'the volume is not deleted as a duplicate');
    await removeFinalizer();
    await story.runUntilDone(claim, worker);
    await story.assertOneVolume(claim);
    assert.equal(story.creates(claim).length, 1);
  });

  it('of the new PV’s name leaves nothing when the claim is deleted meanwhile', async () => {
    const claim = await story.rig.claim();
    const removeFinalizer = await createDeletedPv(claim);
    const worker = story.worker();
    assert.equal((await worker.reconcileClaim(claim)).kind, 'later');
    await story.deleteClaim(claim);
    assert.equal((await worker.reconcileClaim(claim)).kind, 'later');
    await removeFinalizer();
    await story.runUntilDone(claim, worker);
    await story.assertNothingLeft(claim);
  });

  it('does not close the open record of its volume', async () => {
    const claim = await story.rig.claim();
    await story.loseAnswer(claim);
    const name = `pvc-${claim.metadata.uid}`;
    const [made] = story.rig.driver.volumes().filter((volume) => volume.name === name);
    // A PV of this claim and handle that another process created and is deleting.
    await story.rig.kube.create<Volume>(volumes, undefined, {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name, finalizers: [KEEP] },
      spec: {
        capacity: { storage: '1Mi' },
        accessModes: ['ReadWriteOnce'],
        persistentVolumeReclaimPolicy: 'Delete',
        claimRef: {
          namespace: 'default',
          name: `not-${claim.metadata.name}`,
          uid: claim.metadata.uid,
        },
        csi: { driver: 'sample.csi.sutler.dev', volumeHandle: made?.handle ?? '' },
      },
    });
    await story.rig.kube.delete(volumes, { name });
    const worker = story.worker();
    assert.equal((await worker.reconcileClaim(claim)).kind, 'later');
    const record = await story.rig.record(claim.metadata.uid);
    assert.deepEqual([record['state'], record['amb'], record['n']], ['creating', '1', '1']);
    await story.rig.kube.patch(
      volumes,
      { name },
      { type: 'merge', body: { metadata: { finalizers: null } } },
    );
    await until(async () => (await story.rig.volumeOf(claim)) === undefined, 'it is gone');
    await story.runUntilDone(claim, worker);
    await story.assertOneVolume(claim);
    assert.equal((await story.rig.volumeOf(claim))?.spec.csi?.volumeHandle, made?.handle);
  });
});

describe('Create, Delete, Create', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  /** A worker that reads the claim as it was before it was bound. */
  const workerWithStaleRead = (claim: Claim, timing: Partial<Timing> = {}) =>
    story.worker({
      timing,
      parts: story.kubeWith({
        get: (resource, ...args) =>
          resource === claims
            ? Promise.resolve(claim as never)
            : story.rig.kube.get(resource, ...args),
      }),
    });

  it('is refused after the deletion, also to a run with a stale read of the claim', async () => {
    const claim = await story.rig.claim();
    await story.runUntilDone(claim);
    await story.deleteClaim(claim);
    await story.runUntilDone(claim);
    const stale = await workerWithStaleRead(claim).reconcileClaim(claim);
    assert.ok(
      stale.kind === 'later' && stale.reason.includes('was deleted'),
      JSON.stringify(stale),
    );
    assert.equal(story.creates(claim).length, 1);
    assert.equal((await story.worker().reconcileClaim(claim)).kind, 'done');
    await story.assertNothingLeft(claim);
  });

  it('of a claim that a backup brought back waits minutes, and an event says until when', async () => {
    const claim = await story.rig.claim();
    const timing = { timeoutMs: 500, writeAllowanceMs: 500 };
    const before = story.worker({ timing });
    await story.runUntilDone(claim, before);
    await story.deleteClaim(claim);
    await story.runUntilDone(claim, before);
    const worker = workerWithStaleRead(claim, timing);
    const outcome = await worker.reconcileClaim(claim);
    const delayMs = outcome.kind === 'later' ? outcome.delayMs : undefined;
    assert.ok(delayMs !== undefined && delayMs <= 1_200, JSON.stringify(outcome));
    const warning = story.messages().at(-1) ?? '';
    const endMs = Date.parse(/^Warning .* before (\S+Z),/.exec(warning)?.[1] ?? '');
    assert.ok(endMs - Date.now() <= 2_200, warning);
    await until(
      async () => (await worker.reconcileClaim(claim)).kind === 'done',
      'the volume is created',
      5_000,
    );
    assert.equal(story.creates(claim).length, 2);
  });

  it('is refused while the deletion is under way', async () => {
    const claim = await story.rig.claim();
    await story.runUntilDone(claim);
    await story.deleteClaim(claim);
    await until(
      async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
      'the volume is released',
    );
    const pause = new Pause();
    story.script(({ method }) => (method === 'DeleteVolume' ? pause.wait() : undefined));
    const removing = story.worker().reconcileVolume((await story.rig.volumeOf(claim)) as Volume);
    await pause.reached;
    const stale = await workerWithStaleRead(claim).reconcileClaim(claim);
    assert.ok(stale.kind === 'running' && stale.reason.includes('deleting'), JSON.stringify(stale));
    pause.resume();
    assert.equal((await removing).kind, 'done');
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
    assert.equal(story.creates(claim).length, 1);
  });

  it('for a new claim of the same name makes a new volume', async () => {
    const claim = await story.rig.claim({ name: 'again' });
    await story.runUntilDone(claim);
    await story.deleteClaim(claim);
    const next = await story.rig.kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: 'again', namespace: 'default' },
      spec: claim.spec,
    });
    await story.runUntilDone(claim);
    await story.runUntilDone(next);
    await story.assertNothingLeft(claim);
    await story.assertOneVolume(next);
  });
});

import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { until } from '../harness/csi-folder.ts';
import { Ice, Story } from './story.ts';

/* A worker that stands still (SIGSTOP, a long pause of its machine) at a place of the test's
 * choice, while others carry its volume through a whole life. */
describe('a worker that was frozen', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  /** Records whose creation or deletion stands still right before it is opened. */
  const frozenBeforeOpen = (ice: Ice) =>
    class extends VolumeRecords {
      override async openCreate(
        ...args: Parameters<VolumeRecords['openCreate']>
      ): ReturnType<VolumeRecords['openCreate']> {
        await ice.freeze();
        return super.openCreate(...args);
      }
      override async openDelete(
        ...args: Parameters<VolumeRecords['openDelete']>
      ): ReturnType<VolumeRecords['openDelete']> {
        await ice.freeze();
        return super.openDelete(...args);
      }
    };

  /** Made by others, bound, deleted with its claim, gone. */
  async function wholeLife(claim: Claim): Promise<void> {
    await story.settle(claim);
    await story.assertOneVolume(claim);
    await story.deleteClaim(claim);
    await story.settle(claim);
    await story.assertNothingLeft(claim);
  }

  it('before it opened the record, and thaws after the volume’s whole life, makes no second volume', async () => {
    const claim = await story.rig.claim();
    const ice = new Ice();
    const frozen = story.worker({ records: frozenBeforeOpen(ice) }).provision(claim);
    await ice.reached;
    await wholeLife(claim);
    ice.thaw();
    const outcome = await frozen;
    assert.ok(outcome.kind === 'later' && outcome.reason.includes('gone'), JSON.stringify(outcome));
    assert.equal(story.creates(claim).length, 1);
    await story.settle(claim);
    await story.assertNothingLeft(claim);
    assert.equal(story.deletes().length, 1);
  });

  it('before it opened the record, for longer than its leave to send, sends nothing and leaves the record as it was', async () => {
    const claim = await story.rig.claim();
    const ice = new Ice();
    const frozen = story
      .worker({ records: frozenBeforeOpen(ice), timing: { writeAllowanceMs: 30 } })
      .provision(claim);
    await ice.reached;
    await systemClock.sleep(60);
    ice.thaw();
    assert.equal((await frozen).kind, 'running');
    assert.equal(story.creates(claim).length, 0);
    assert.deepEqual(await story.rig.record(claim.metadata.uid), {});
    await story.settle(claim);
    await story.assertOneVolume(claim);
  });

  it('between open and call, and was taken over, sends nothing when it thaws after the whole life', async () => {
    const claim = await story.rig.claim();
    const ice = new Ice();
    const { csi } = story.rig.ports;
    const ports = story.csiWith({
      createVolume: async (...args) => {
        await ice.freeze();
        return csi.createVolume(...args);
      },
    });
    const frozen = story
      .worker({ ports, timing: { timeoutMs: 20, writeAllowanceMs: 30 } })
      .provision(claim);
    await ice.reached;
    await systemClock.sleep(80);
    await wholeLife(claim);
    ice.thaw();
    const outcome = await frozen;
    assert.ok(
      outcome.kind === 'later' && outcome.reason.includes('taken over'),
      JSON.stringify(outcome),
    );
    assert.equal(story.creates(claim).length, 1);
    assert.deepEqual((await story.rig.record(claim.metadata.uid))['state'], 'gone');
    await story.assertNothingLeft(claim);
  });

  it('between the answer and the PV, and thaws after the whole life, leaves no PV behind and deletes nothing twice', async () => {
    const claim = await story.rig.claim();
    const ice = new Ice();
    const ports = story.kubeWith({
      create: async (...args) => {
        await ice.freeze();
        return story.rig.kube.create(...args);
      },
    });
    const frozen = story.worker({ ports }).provision(claim);
    await ice.reached;
    await story.endOwnership(claim.metadata.uid);
    await wholeLife(claim);
    ice.thaw();
    // It has an answer, so it writes: of a volume that is gone, for a claim that is gone.
    assert.equal((await frozen).kind, 'later');
    assert.ok(await story.rig.volumeOf(claim));
    await until(
      'the volume controller releases it',
      async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
    );
    await story.settle(claim);
    await story.assertNothingLeft(claim);
    assert.equal(story.deletes().length, 1);
  });

  it('before it sent a deletion, and thaws when others have ended it, sends nothing', async () => {
    const claim = await story.rig.claim();
    await story.settle(claim);
    await story.deleteClaim(claim);
    await until(
      'the volume is released',
      async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
    );
    const volume = (await story.rig.volumeOf(claim)) as Volume;
    const [beforeOpen, beforeCall] = [new Ice(), new Ice()];
    const early = story.worker({ records: frozenBeforeOpen(beforeOpen) }).remove(volume);
    await beforeOpen.reached;
    const { csi } = story.rig.ports;
    const ports = story.csiWith({
      deleteVolume: async (...args) => {
        await beforeCall.freeze();
        return csi.deleteVolume(...args);
      },
    });
    const late = story
      .worker({ ports, timing: { timeoutMs: 20, writeAllowanceMs: 30 } })
      .remove(volume);
    await beforeCall.reached;
    await systemClock.sleep(80);
    await story.settle(claim);
    await story.assertNothingLeft(claim);
    beforeOpen.thaw();
    beforeCall.thaw();
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

  /** A PV of the claim's name that goes away as soon as `let go`. */
  async function leaving(claim: Claim): Promise<() => Promise<unknown>> {
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

  it('in the way of the POST is waited for: the answer is kept, and one volume and its PV are there in the end', async () => {
    const claim = await story.rig.claim();
    const letGo = await leaving(claim);
    const worker = story.worker();
    const outcome = await worker.provision(claim);
    assert.ok(
      outcome.kind === 'later' && outcome.reason.includes('being deleted'),
      JSON.stringify(outcome),
    );
    assert.equal((await worker.provision(claim)).kind, 'later');
    assert.equal(story.deletes().length, 0, 'the volume is not taken for surplus');
    await letGo();
    await story.settle(claim, worker);
    await story.assertOneVolume(claim);
    assert.equal(story.creates(claim).length, 1);
  });

  it('in the way of the POST, with the claim deleted meanwhile, still ends with nothing left', async () => {
    const claim = await story.rig.claim();
    const letGo = await leaving(claim);
    const worker = story.worker();
    assert.equal((await worker.provision(claim)).kind, 'later');
    await story.deleteClaim(claim);
    assert.equal((await worker.provision(claim)).kind, 'later');
    await letGo();
    await story.settle(claim, worker);
    await story.assertNothingLeft(claim);
  });

  it('of an open record is not taken for stored: the record stays open with its mark', async () => {
    const claim = await story.rig.claim();
    await story.loseAnswer(claim);
    const name = `pvc-${claim.metadata.uid}`;
    const [made] = story.rig.driver.volumes().filter((volume) => volume.name === name);
    // Somebody else's hands: a PV of this very claim and handle, on its way out.
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
    assert.equal((await worker.provision(claim)).kind, 'later');
    const record = await story.rig.record(claim.metadata.uid);
    assert.deepEqual([record['state'], record['amb'], record['n']], ['creating', '1', '1']);
    await story.rig.kube.patch(
      volumes,
      { name },
      { type: 'merge', body: { metadata: { finalizers: null } } },
    );
    await until('it is gone', async () => (await story.rig.volumeOf(claim)) === undefined);
    await story.settle(claim, worker);
    await story.assertOneVolume(claim);
    assert.equal((await story.rig.volumeOf(claim))?.spec.csi?.volumeHandle, made?.handle);
  });
});

describe('Create, Delete, Create (L3)', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  /** A worker that is shown the claim as it was before it was bound. */
  const believing = (claim: Claim) =>
    story.worker({
      ports: story.kubeWith({
        get: (resource, ...args) =>
          resource === claims
            ? Promise.resolve(claim as never)
            : story.rig.kube.get(resource, ...args),
      }),
    });

  it('is refused after the deletion, even to a run that sees the claim as it was at first', async () => {
    const claim = await story.rig.claim();
    await story.settle(claim);
    await story.deleteClaim(claim);
    await story.settle(claim);
    const stale = await believing(claim).provision(claim);
    assert.ok(stale.kind === 'later' && stale.reason.includes('gone'), JSON.stringify(stale));
    assert.equal(story.creates(claim).length, 1);
    assert.equal((await story.worker().provision(claim)).kind, 'done');
    await story.assertNothingLeft(claim);
  });

  it('is refused while the deletion is under way', async () => {
    const claim = await story.rig.claim();
    await story.settle(claim);
    await story.deleteClaim(claim);
    await until(
      'the volume is released',
      async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
    );
    const ice = new Ice();
    story.script(({ method }) => (method === 'DeleteVolume' ? ice.freeze() : undefined));
    const removing = story.worker().remove((await story.rig.volumeOf(claim)) as Volume);
    await ice.reached;
    const stale = await believing(claim).provision(claim);
    assert.ok(stale.kind === 'running' && stale.reason.includes('deleting'), JSON.stringify(stale));
    ice.thaw();
    assert.equal((await removing).kind, 'done');
    await story.settle(claim);
    await story.assertNothingLeft(claim);
    assert.equal(story.creates(claim).length, 1);
  });

  it('of a claim of the same name is a volume of its own', async () => {
    const claim = await story.rig.claim({ name: 'again' });
    await story.settle(claim);
    await story.deleteClaim(claim);
    const next = await story.rig.kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: 'again', namespace: 'default' },
      spec: claim.spec,
    });
    await story.settle(claim);
    await story.settle(next);
    await story.assertNothingLeft(claim);
    await story.assertOneVolume(next);
  });
});

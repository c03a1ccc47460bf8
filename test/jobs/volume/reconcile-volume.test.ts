import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { VOLUME_FINALIZER } from '#src/kube/keys.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Volume } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { kubeWith } from '../parts.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { openRig, type Rig } from '../rig.ts';
import {
  countDeletions,
  createReleasedVolume,
  createStaticVolume,
  edit,
  isDeletedByUs,
  lastDeletion,
  listWarnings,
  readAgain,
} from '../stored-volume.ts';

const OTHERS = 'example.com/keep';

describe('reconcileVolume', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const finalizersOf = async (volume: Volume) =>
    (await readAgain(rig, volume))?.metadata.finalizers ?? [];
  const refuseDeletions = (message: string): void => {
    rig.onCall = ({ method }) => {
      if (method === 'DeleteVolume') throw new DriverStatus(Code.Internal, message);
    };
  };
  const counted = async (): Promise<Record<string, number>> => {
    const values = async (name: string): Promise<number> => {
      const metric = await rig.metrics
        .getSingleMetric(`controller_persistentvolume_${name}`)
        ?.get();
      return (metric?.values ?? []).reduce((sum, { value }) => sum + value, 0);
    };
    return { deleted: await values('delete_total'), failed: await values('delete_failed_total') };
  };
  /** What a step adds to the metrics. */
  const countedBy = async (step: () => Promise<unknown>): Promise<Record<string, number>> => {
    const start = await counted();
    await step();
    const end = await counted();
    return Object.fromEntries(
      Object.entries(end).map(([name, value]) => [name, value - (start[name] ?? 0)]),
    );
  };
  const failingDelete = (code: number) =>
    kubeWith(rig, {
      delete: () =>
        Promise.reject(new KubeError({ code, reason: 'InternalError', serverMessage: 'lost' })),
    });

  it('gives a new PV our finalizer from the start (P-31)', async () => {
    const claim = await rig.claim();
    await rig.provision(claim);
    assert.ok((await rig.volumeOf(claim))?.metadata.finalizers?.includes(VOLUME_FINALIZER));
  });

  it('deletes the volume in the driver, then removes our finalizer (P-35)', async () => {
    const volume = await createReleasedVolume(rig);
    assert.deepEqual(await countedBy(() => rig.remove(volume)), { deleted: 1, failed: 0 });
    assert.equal(countDeletions(rig), 1);
    assert.ok(isDeletedByUs(await readAgain(rig, volume)));
    assert.ok(rig.driver.volumes().every(({ name }) => name !== volume.metadata.name));
  });

  it('sends one read, two writes and one call', async () => {
    const volume = await createReleasedVolume(rig);
    const counted: string[] = [];
    const { kube } = rig;
    const counting = kubeWith(rig, {
      get: (...args) => (counted.push('get'), kube.get(...args)),
      create: (...args) => (counted.push('create'), kube.create(...args)),
      patch: (...args) => (counted.push('patch'), kube.patch(...args)),
      delete: (...args) => (counted.push('delete'), kube.delete(...args)),
    });
    await rig.remove(volume, counting);
    assert.deepEqual(counted, ['get', 'delete', 'patch']);
    assert.equal(countDeletions(rig), 1);
  });

  it('leaves other finalizers alone', async () => {
    const volume = await createReleasedVolume(rig);
    await edit(rig, volume, { metadata: { finalizers: [OTHERS, VOLUME_FINALIZER] } });
    await rig.remove(volume);
    assert.deepEqual(await finalizersOf(volume), [OTHERS]);
  });

  it('deletes a volume whose PV was deleted before its claim (P-36)', async () => {
    const volume = await createStaticVolume(rig, { phase: 'Bound' });
    await rig.kube.delete(volumes, { name: volume.metadata.name });
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(countDeletions(rig), 0, 'not while its claim exists');
    await rig.setPhase(volume, 'Released');
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(countDeletions(rig), 1);
    assert.equal(await readAgain(rig, volume), undefined);
  });

  it('deletes a static volume of our driver (R-24)', async () => {
    const volume = await createStaticVolume(rig);
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(lastDeletion(rig).volumeId, volume.spec.csi?.volumeHandle);
    assert.equal(await readAgain(rig, volume), undefined);
  });

  it('deletes a volume that never had our finalizer, and its PV', async () => {
    const volume = await createStaticVolume(rig, { finalizers: [] });
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(countDeletions(rig), 1);
    assert.ok(isDeletedByUs(await readAgain(rig, volume)));
  });

  it('deletes our volume and leaves another provisioner’s alone (P-05)', async () => {
    const ours = await createStaticVolume(rig);
    const theirs = await createStaticVolume(rig, {
      annotations: { 'pv.kubernetes.io/provisioned-by': 'other.example.com' },
    });
    const counts = await countedBy(async () => {
      for (const volume of [ours, theirs]) await rig.remove(volume);
    });
    assert.deepEqual(counts, { deleted: 1, failed: 0 });
    assert.equal(await readAgain(rig, ours), undefined);
    assert.deepEqual(await finalizersOf(theirs), [VOLUME_FINALIZER]);
  });

  it('counts a failure if the API server refuses to delete the PV, and deletes again (P-13, P-38)', async () => {
    const volume = await createReleasedVolume(rig);
    for (const [code, kind] of [
      [500, 'later'],
      [403, 'retry'],
    ] as const) {
      const counts = await countedBy(async () =>
        assert.equal((await rig.remove(volume, failingDelete(code))).kind, kind),
      );
      assert.deepEqual(counts, { deleted: 0, failed: 1 });
    }
    assert.ok((await finalizersOf(volume)).includes(VOLUME_FINALIZER));
    assert.deepEqual(listWarnings(rig), [], 'users can do nothing about it');
    assert.deepEqual(await countedBy(() => rig.remove(volume)), { deleted: 1, failed: 0 });
  });

  it('takes a PV that is already gone for success (R-22)', async () => {
    const volume = await createStaticVolume(rig);
    const { kube } = rig;
    const alreadyGone = kubeWith(rig, {
      async delete<T>(...args: Parameters<typeof kube.delete>) {
        await edit(rig, volume, { metadata: { finalizers: null } });
        await kube.delete(volumes, { name: volume.metadata.name });
        return kube.delete<T>(...args);
      },
    });
    assert.equal((await rig.remove(volume, alreadyGone)).kind, 'done');
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.deepEqual([countDeletions(rig), listWarnings(rig)], [1, []]);
  });

  it('does nothing for a PV that is gone (F-01)', async () => {
    const volume = await createStaticVolume(rig, { finalizers: [] });
    await rig.kube.delete(volumes, { name: volume.metadata.name });
    assert.deepEqual(
      await countedBy(async () => assert.equal((await rig.remove(volume)).kind, 'done')),
      { deleted: 0, failed: 0 },
    );
    assert.deepEqual([countDeletions(rig), listWarnings(rig)], [0, []]);
  });

  it('sends nothing for a Bound volume (P-08)', async () => {
    const volume = await createReleasedVolume(rig);
    await rig.setPhase(volume, 'Bound');
    assert.deepEqual(await countedBy(() => rig.remove(volume)), { deleted: 0, failed: 0 });
    assert.equal(countDeletions(rig), 0);
    assert.equal((await readAgain(rig, volume))?.metadata.deletionTimestamp, undefined);
  });

  it('leaves a PV alone that is being deleted without our finalizer (P-34)', async () => {
    const volume = await createStaticVolume(rig, { finalizers: [OTHERS] });
    await rig.kube.delete(volumes, { name: volume.metadata.name });
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(countDeletions(rig), 0);
    assert.deepEqual(await finalizersOf(volume), [OTHERS]);
  });

  it('removes the finalizer from a retained volume and keeps the volume (P-09)', async () => {
    const volume = await createReleasedVolume(rig, { reclaimPolicy: 'Retain' });
    assert.deepEqual(await countedBy(() => rig.remove(volume)), { deleted: 0, failed: 0 });
    const left = await readAgain(rig, volume);
    assert.equal(left?.metadata.finalizers?.includes(VOLUME_FINALIZER), false);
    assert.equal(left?.metadata.deletionTimestamp, undefined);
    assert.equal(countDeletions(rig), 0);
  });

  it('keeps PV and finalizer while the driver refuses (P-11) (P-37)', async () => {
    const volume = await createReleasedVolume(rig);
    refuseDeletions('busy disk');
    assert.deepEqual(await countedBy(() => rig.remove(volume)), { deleted: 0, failed: 1 });
    const left = await readAgain(rig, volume);
    assert.ok(left?.metadata.finalizers?.includes(VOLUME_FINALIZER));
    assert.equal(left?.metadata.deletionTimestamp, undefined);
  });

  it('deletes a volume that is stored in an in-tree form (G-10) (G-12)', async () => {
    const asDriver: Dependencies['facts'] = () => ({
      ...rig.parts.facts(),
      name: 'pd.csi.storage.gke.io',
      inTreeName: 'kubernetes.io/gce-pd',
    });
    const volume = await createStaticVolume(rig, {
      annotations: { 'pv.kubernetes.io/provisioned-by': 'kubernetes.io/gce-pd' },
      labels: { 'topology.kubernetes.io/zone': 'us-a1-b' },
      source: { gcePersistentDisk: { pdName: 'disk' } },
    });
    const migrated: (boolean | undefined)[] = [];
    const { csi } = rig.parts;
    const watched: Dependencies['csi'] = {
      createVolume: (...args) => csi.createVolume(...args),
      getCapacity: (...args) => csi.getCapacity(...args),
      deleteVolume: (request, settings) => (
        migrated.push(settings.migrated),
        csi.deleteVolume(request, settings)
      ),
    };
    assert.equal((await rig.remove(volume, { facts: asDriver, csi: watched })).kind, 'done');
    assert.equal(lastDeletion(rig).volumeId, 'projects/UNSPECIFIED/zones/us-a1-b/disks/disk');
    assert.equal(await readAgain(rig, volume), undefined);

    await rig.remove(await createStaticVolume(rig), { csi: watched });
    assert.deepEqual(migrated, [true, false]);
  });

  describe('after a call of unknown end', () => {
    const loseAnswer = () => {
      rig.onCall = async ({ method, proceed }) => {
        if (method !== 'DeleteVolume') return undefined;
        await proceed();
        throw new DriverStatus(Code.DeadlineExceeded, 'out of time');
      };
    };

    it('deletes at once, and ends its job only when that call is over', async () => {
      const volume = await createReleasedVolume(rig);
      loseAnswer();
      assert.equal((await rig.remove(volume)).kind, 'running');
      rig.onCall = () => undefined;
      const outcome = await rig.remove(volume);
      assert.ok(outcome.kind === 'later' && (outcome.delayMs ?? 0) > 50_000, outcome.kind);
      assert.ok(isDeletedByUs(await readAgain(rig, volume)));
      await rig.endDoubt(volume);
      assert.equal((await rig.remove(volume)).kind, 'done');
      assert.equal(countDeletions(rig), 2);
    });

    it('ends its job only when that call is over, if the PV has vanished', async () => {
      const volume = await createReleasedVolume(rig);
      loseAnswer();
      await rig.remove(volume);
      await edit(rig, volume, { metadata: { finalizers: null } });
      await rig.kube.delete(volumes, { name: volume.metadata.name });
      assert.equal((await rig.remove(volume)).kind, 'later');
      await rig.endDoubt(volume);
      assert.equal((await rig.remove(volume)).kind, 'done');
      assert.equal(countDeletions(rig), 1);
    });

    it('ends its job only when that call is over, if the PV is retained now', async () => {
      const volume = await createReleasedVolume(rig);
      loseAnswer();
      await rig.remove(volume);
      const spec = { persistentVolumeReclaimPolicy: 'Retain' };
      await edit(rig, volume, { metadata: { finalizers: null }, spec });
      assert.equal((await rig.remove(volume)).kind, 'later');
      await rig.endDoubt(volume);
      assert.equal((await rig.remove(volume)).kind, 'done');
    });
  });

  it('leaves a PV alone that has the name of another that vanished', async () => {
    const volume = await createStaticVolume(rig, { finalizers: [] });
    await rig.kube.delete(volumes, { name: volume.metadata.name });
    const { claimRef: _, ...spec } = volume.spec;
    const body = { ...volume, metadata: { name: volume.metadata.name }, spec };
    await rig.setPhase(await rig.kube.create<Volume>(volumes, undefined, body), 'Released');
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(countDeletions(rig), 0);
  });
});

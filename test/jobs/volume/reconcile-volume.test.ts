import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { VOLUME_FINALIZER } from '#src/kube/keys.ts';
import type { Volume } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { useRig, type Rig } from '../rig.ts';

const OTHERS = 'example.com/keep';

describe('reconcileVolume', () => {
  let rig: Rig;
  useRig((opened) => (rig = opened));

  const finalizersOf = async (volume: Volume) =>
    (await rig.readAgain(volume))?.metadata.finalizers ?? [];
  const removePv = ({ metadata: { name } }: Volume) => rig.kube.delete(volumes, { name });
  const kindOf = async (volume: Volume, parts?: Partial<Dependencies>) =>
    (await rig.remove(volume, parts)).kind;
  /** Deletes the volume, and says what that added to upstream's metrics. */
  const countedBy = async (volume: Volume, parts?: Partial<Dependencies>) => {
    const counts = async (): Promise<number[]> =>
      Promise.all(
        ['delete_total', 'delete_failed_total'].map(async (name) => {
          const metric = rig.metrics.getSingleMetric(`controller_persistentvolume_${name}`);
          return ((await metric?.get())?.values ?? []).reduce((sum, { value }) => sum + value, 0);
        }),
      );
    const start = await counts();
    const { kind } = await rig.remove(volume, parts);
    const [deleted, failed] = (await counts()).map((count, i) => count - (start[i] ?? 0));
    return { kind, deleted, failed };
  };

  it('gives a new PV our finalizer from the start (P-31)', async () => {
    const claim = await rig.claim();
    await rig.provision(claim);
    assert.ok((await rig.volumeOf(claim))?.metadata.finalizers?.includes(VOLUME_FINALIZER));
  });

  it('deletes a volume that is Released when it is read, then our finalizer (P-35, P-100)', async () => {
    const claim = await rig.claim();
    await rig.provision(claim);
    const seen = await rig.volumeOf(claim);
    assert.ok(seen);
    await rig.setPhase(seen, 'Released');
    assert.deepEqual(await countedBy(seen), { kind: 'done', deleted: 1, failed: 0 });
    assert.equal(rig.countDeletions(), 1);
    assert.ok(await rig.isDeleted(seen));
    assert.ok(rig.driver.volumes().every(({ name }) => name !== seen.metadata.name));
  });

  it('sends one read, two writes and one call', async () => {
    const volume = await rig.createReleasedVolume();
    const counted: string[] = [];
    const { kube } = rig;
    const counting = rig.kubeWith({
      get: (...args) => (counted.push('get'), kube.get(...args)),
      patch: (...args) => (counted.push('patch'), kube.patch(...args)),
      delete: (...args) => (counted.push('delete'), kube.delete(...args)),
    });
    await rig.remove(volume, counting);
    assert.deepEqual(counted, ['get', 'delete', 'patch']);
    assert.equal(rig.countDeletions(), 1);
  });

  it('leaves other finalizers alone', async () => {
    const volume = await rig.createReleasedVolume();
    await rig.edit(volume, { metadata: { finalizers: [OTHERS, VOLUME_FINALIZER] } });
    await rig.remove(volume);
    assert.deepEqual(await finalizersOf(volume), [OTHERS]);
  });

  it('deletes a volume whose PV was deleted before its claim (P-36)', async () => {
    const volume = await rig.createStaticVolume({ phase: 'Bound' });
    await removePv(volume);
    assert.equal(await kindOf(volume), 'done');
    assert.equal(rig.countDeletions(), 0, 'not while its claim exists');
    await rig.setPhase(volume, 'Released');
    assert.equal(await kindOf(volume), 'done');
    assert.equal(rig.countDeletions(), 1);
    assert.equal(await rig.readAgain(volume), undefined);
  });

  it('deletes our static volume and leaves another provisioner’s alone (P-05, R-24)', async () => {
    const ours = await rig.createStaticVolume();
    const annotations = { 'pv.kubernetes.io/provisioned-by': 'other.example.com' };
    const theirs = await rig.createStaticVolume({ annotations });
    assert.deepEqual(await countedBy(theirs), { kind: 'done', deleted: 0, failed: 0 });
    assert.deepEqual(await countedBy(ours), { kind: 'done', deleted: 1, failed: 0 });
    assert.equal(rig.lastDeletion().volumeId, ours.spec.csi?.volumeHandle);
    assert.equal(await rig.readAgain(ours), undefined);
    assert.deepEqual(await finalizersOf(theirs), [VOLUME_FINALIZER]);
  });

  it('deletes a volume that never had our finalizer, and its PV', async () => {
    const volume = await rig.createStaticVolume({ finalizers: [] });
    assert.equal(await kindOf(volume), 'done');
    assert.equal(rig.countDeletions(), 1);
    assert.ok(await rig.isDeleted(volume));
  });

  it('counts a failure if the PV can’t be deleted, without an event, and deletes it later (P-13, P-38)', async () => {
    const volume = await rig.createReleasedVolume();
    for (const [code, kind] of [
      [500, 'later'],
      [403, 'retry'],
    ] as const)
      assert.deepEqual(await countedBy(volume, rig.refusing('delete', code)), {
        kind,
        deleted: 0,
        failed: 1,
      });
    assert.ok((await finalizersOf(volume)).includes(VOLUME_FINALIZER));
    assert.deepEqual(rig.warnings(), [], 'users can do nothing about it');
    const { deleted, failed } = await countedBy(volume);
    assert.deepEqual([deleted, failed], [1, 0]);
  });

  it('takes a PV that is already gone for success (R-22)', async () => {
    const volume = await rig.createStaticVolume();
    const { kube } = rig;
    const alreadyGone = rig.kubeWith({
      async delete<T>(...args: Parameters<typeof kube.delete>) {
        await rig.edit(volume, { metadata: { finalizers: null } });
        await removePv(volume);
        return kube.delete<T>(...args);
      },
    });
    assert.equal(await kindOf(volume, alreadyGone), 'done');
    assert.equal(await kindOf(volume), 'done');
    assert.deepEqual([rig.countDeletions(), rig.warnings()], [1, []]);
  });

  it('does nothing for a PV that is gone (F-01)', async () => {
    const volume = await rig.createStaticVolume({ finalizers: [] });
    await removePv(volume);
    assert.deepEqual(await countedBy(volume), { kind: 'done', deleted: 0, failed: 0 });
    assert.deepEqual([rig.countDeletions(), rig.warnings()], [0, []]);
  });

  it('leaves a PV alone that has the name of another that vanished', async () => {
    const volume = await rig.createStaticVolume({ finalizers: [] });
    await removePv(volume);
    const { claimRef: _, ...spec } = volume.spec;
    const body = { ...volume, metadata: { name: volume.metadata.name }, spec };
    await rig.setPhase(await rig.kube.create<Volume>(volumes, undefined, body), 'Released');
    assert.equal(await kindOf(volume), 'done');
    assert.equal(rig.countDeletions(), 0);
  });

  it('sends nothing for a Bound volume (P-08)', async () => {
    const volume = await rig.createStaticVolume({ phase: 'Bound' });
    assert.deepEqual(await countedBy(volume), { kind: 'done', deleted: 0, failed: 0 });
    assert.equal(rig.countDeletions(), 0);
    assert.equal((await rig.readAgain(volume))?.metadata.deletionTimestamp, undefined);
  });

  it('leaves a PV alone that is being deleted without our finalizer (P-34)', async () => {
    const volume = await rig.createStaticVolume({ finalizers: [OTHERS] });
    await removePv(volume);
    assert.equal(await kindOf(volume), 'done');
    assert.equal(rig.countDeletions(), 0);
    assert.deepEqual(await finalizersOf(volume), [OTHERS]);
  });

  it('removes the finalizer from a retained volume and keeps the volume (P-09)', async () => {
    const volume = await rig.createReleasedVolume({ reclaimPolicy: 'Retain' });
    assert.deepEqual(await countedBy(volume), { kind: 'done', deleted: 0, failed: 0 });
    const { finalizers, deletionTimestamp } = (await rig.readAgain(volume))?.metadata ?? {};
    assert.equal(finalizers?.includes(VOLUME_FINALIZER), false);
    assert.equal(deletionTimestamp, undefined);
    assert.equal(rig.countDeletions(), 0);
  });

  it('keeps PV and finalizer while the driver refuses, reports that once and retries (P-11) (P-37)', async () => {
    const volume = await rig.createReleasedVolume();
    rig.failWith('Internal', 'busy disk', 'DeleteVolume');
    for (const _ of [1, 2])
      assert.deepEqual(await countedBy(volume), { kind: 'retry', deleted: 0, failed: 1 });
    const { finalizers, deletionTimestamp } = (await rig.readAgain(volume))?.metadata ?? {};
    assert.ok(finalizers?.includes(VOLUME_FINALIZER));
    assert.equal(deletionTimestamp, undefined);
    assert.deepEqual(rig.warnings(), [
      'VolumeFailedDelete rpc error: code = Internal desc = busy disk',
    ]);
  });

  it('deletes a volume that is stored in an in-tree form (G-10) (G-12)', async () => {
    const facts: Dependencies['facts'] = () => ({
      ...rig.parts.facts(),
      name: 'pd.csi.storage.gke.io',
      inTreeName: 'kubernetes.io/gce-pd',
    });
    const volume = await rig.createStaticVolume({
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
    assert.equal(await kindOf(volume, { facts, csi: watched }), 'done');
    assert.equal(rig.lastDeletion().volumeId, 'projects/UNSPECIFIED/zones/us-a1-b/disks/disk');
    assert.equal(await rig.readAgain(volume), undefined);
    assert.deepEqual(migrated, [true]);
  });

  describe('after a call of unknown end', () => {
    /** A Released volume whose call had an unknown end. */
    const begun = async (): Promise<Volume> => {
      const volume = await rig.createReleasedVolume();
      rig.loseAnswers('DeleteVolume');
      assert.equal(await kindOf(volume), 'running');
      rig.endFaults();
      return volume;
    };
    const unprotected = { metadata: { finalizers: null } };
    const retained = { ...unprotected, spec: { persistentVolumeReclaimPolicy: 'Retain' } };

    it('deletes at once, and ends its job only when that call is over', async () => {
      const volume = await begun();
      const outcome = await rig.remove(volume);
      assert.ok(outcome.kind === 'later' && (outcome.delayMs ?? 0) > 50_000, outcome.kind);
      assert.ok(await rig.isDeleted(volume));
      await rig.endDoubt(volume);
      assert.equal(await kindOf(volume), 'done');
      assert.equal(rig.countDeletions(), 2);
    });

    for (const [title, change] of [
      ['the PV has vanished', unprotected],
      ['the PV is retained now', retained],
    ] as const)
      it(`ends its job only when that call is over, if ${title}`, async () => {
        const volume = await begun();
        await rig.edit(volume, change);
        if (change === unprotected) await removePv(volume);
        assert.equal(await kindOf(volume), 'later');
        await rig.endDoubt(volume);
        assert.equal(await kindOf(volume), 'done');
        assert.equal(rig.countDeletions(), 1);
      });
  });

  describe('the finalizer of a volume', () => {
    const setPolicy = (volume: Volume, persistentVolumeReclaimPolicy: string) =>
      rig.edit(volume, { spec: { persistentVolumeReclaimPolicy } });
    const bound = (...finalizers: readonly string[]) =>
      rig.createStaticVolume({ phase: 'Bound', finalizers });

    it('is added at the end of the list', async () => {
      const volume = await bound(OTHERS);
      await rig.remove(volume);
      assert.deepEqual(await finalizersOf(volume), [OTHERS, VOLUME_FINALIZER]);
    });

    it('is removed from a Bound volume with the policy Retain (P-33)', async () => {
      const volume = await bound(VOLUME_FINALIZER, OTHERS);
      await setPolicy(volume, 'Retain');
      assert.equal(await kindOf(volume), 'done');
      assert.deepEqual(await finalizersOf(volume), [OTHERS]);
      assert.equal(rig.countDeletions(), 0);
    });

    it('follows the policy, but is added only while the volume is Bound (R-23)', async () => {
      const volume = await bound(VOLUME_FINALIZER);
      const seen: boolean[] = [];
      const set = async (policy: string): Promise<void> => {
        await setPolicy(volume, policy);
        await rig.remove(volume);
        seen.push((await finalizersOf(volume)).includes(VOLUME_FINALIZER));
      };
      for (const policy of ['Retain', 'Delete', 'Retain']) await set(policy);
      const body = { status: { phase: 'Available' } };
      const { name } = volume.metadata;
      await rig.kube.patch(volumes, { name }, { type: 'merge', body, subresource: 'status' });
      await set('Delete');
      assert.deepEqual(seen, [false, true, false, false]);
      assert.equal(rig.countDeletions(), 0);
    });

    it('is removed without a finalizer that was added meanwhile', async () => {
      const volume = await bound(VOLUME_FINALIZER);
      await setPolicy(volume, 'Retain');
      const { kube } = rig;
      const late = rig.kubeWith({
        async patch<T>(...args: Parameters<typeof kube.patch>) {
          await rig.edit(volume, { metadata: { finalizers: [VOLUME_FINALIZER, OTHERS] } });
          return kube.patch<T>(...args);
        },
      });
      await rig.remove(volume, late);
      assert.deepEqual(await finalizersOf(volume), [OTHERS]);
    });

    it('is retried after a refusal, with the list in the reason and without an event', async () => {
      const volume = await bound(OTHERS);
      const change = `[${OTHERS} ${VOLUME_FINALIZER}] on volume ${volume.metadata.name}`;
      const reason = `failed to modify finalizers to ${change} err: not for you`;
      assert.deepEqual(await rig.remove(volume, rig.refusing('patch', 403)), {
        kind: 'retry',
        reason,
      });
      assert.deepEqual(rig.warnings(), []);
    });

    it('needs no change if the PV is gone', async () =>
      assert.equal(await kindOf(await bound(OTHERS), rig.refusing('patch', 404)), 'done'));

    it('is not added to another PV of the same name', async () => {
      const volume = await bound();
      const { name } = volume.metadata;
      const { kube } = rig;
      const replaced = rig.kubeWith({
        async patch<T>(...args: Parameters<typeof kube.patch>) {
          await removePv(volume);
          const metadata = { name, finalizers: [OTHERS] };
          await kube.create(volumes, undefined, { ...volume, metadata });
          return kube.patch<T>(...args);
        },
      });
      assert.equal(await kindOf(volume, replaced), 'retry');
      assert.equal((await finalizersOf(volume)).includes(VOLUME_FINALIZER), false);
    });
  });
});

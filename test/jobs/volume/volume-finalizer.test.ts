import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { VOLUME_FINALIZER } from '#src/kube/keys.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Volume } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import { kubeWith } from '../kube-with.ts';
import { openRig, type Rig } from '../rig.ts';
import { byHand, deletions, edit, reread, warnings } from '../stored-volume.ts';

const OTHERS = 'example.com/other';

describe('the finalizer of a volume', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const finalizersOf = async (volume: Volume) =>
    (await reread(rig, volume))?.metadata.finalizers ?? [];
  const setPolicy = (volume: Volume, persistentVolumeReclaimPolicy: string) =>
    edit(rig, volume, { spec: { persistentVolumeReclaimPolicy } });

  it('is given to a Bound volume that has none', async () => {
    const volume = await byHand(rig, { phase: 'Bound', finalizers: [] });
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.deepEqual(await finalizersOf(volume), [VOLUME_FINALIZER]);
  });

  it('goes to the end of what others put there', async () => {
    const volume = await byHand(rig, { phase: 'Bound', finalizers: [OTHERS] });
    await rig.remove(volume);
    assert.deepEqual(await finalizersOf(volume), [OTHERS, VOLUME_FINALIZER]);
  });

  it('comes off a Bound volume that is to be retained (P-33)', async () => {
    const volume = await byHand(rig, { phase: 'Bound', finalizers: [VOLUME_FINALIZER, OTHERS] });
    await setPolicy(volume, 'Retain');
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.deepEqual(await finalizersOf(volume), [OTHERS]);
    assert.equal(deletions(rig), 0);
  });

  it('follows the policy back and forth, but comes back only while the volume is Bound (R-23)', async () => {
    const volume = await byHand(rig, { phase: 'Bound' });
    const seen: boolean[] = [];
    for (const policy of ['Retain', 'Delete', 'Retain']) {
      await setPolicy(volume, policy);
      await rig.remove(volume);
      seen.push((await finalizersOf(volume)).includes(VOLUME_FINALIZER));
    }
    await rig.kube.patch(
      volumes,
      { name: volume.metadata.name },
      { type: 'merge', body: { status: { phase: 'Available' } }, subresource: 'status' },
    );
    await setPolicy(volume, 'Delete');
    await rig.remove(volume);
    seen.push((await finalizersOf(volume)).includes(VOLUME_FINALIZER));
    assert.deepEqual(seen, [false, true, false, false]);
    assert.equal(deletions(rig), 0);
  });

  it('comes off a volume that is going away and is to be retained', async () => {
    const volume = await byHand(rig, { finalizers: [VOLUME_FINALIZER] });
    await setPolicy(volume, 'Retain');
    await rig.kube.delete(volumes, { name: volume.metadata.name });
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(await reread(rig, volume), undefined);
    assert.equal(deletions(rig), 0);
  });

  it('comes off without what somebody else has put there meanwhile', async () => {
    const volume = await byHand(rig, { phase: 'Bound', finalizers: [VOLUME_FINALIZER] });
    await setPolicy(volume, 'Retain');
    const { kube } = rig;
    const late = kubeWith(rig, {
      async patch<T>(...args: Parameters<typeof kube.patch>) {
        await edit(rig, volume, { metadata: { finalizers: [VOLUME_FINALIZER, OTHERS] } });
        return kube.patch<T>(...args);
      },
    });
    await rig.remove(volume, late);
    assert.deepEqual(await finalizersOf(volume), [OTHERS]);
  });

  const refusing = (code: number, reason: string) =>
    kubeWith(rig, {
      patch: () => Promise.reject(new KubeError({ code, reason, serverMessage: 'no' })),
    });

  it('that can’t be changed is tried again, with the list in the reason and without an event', async () => {
    const volume = await byHand(rig, { phase: 'Bound', finalizers: [OTHERS] });
    const outcome = await rig.remove(volume, refusing(403, 'Forbidden'));
    const reason = `failed to modify finalizers to [${OTHERS} ${VOLUME_FINALIZER}] on volume ${volume.metadata.name} err: no`;
    assert.ok(outcome.kind === 'retry' && outcome.reason === reason, JSON.stringify(outcome));
    assert.deepEqual(warnings(rig), []);
  });

  it('that can’t be changed because the API server is down is no failed attempt', async () => {
    const volume = await byHand(rig, { phase: 'Bound', finalizers: [OTHERS] });
    assert.equal((await rig.remove(volume, refusing(503, 'ServiceUnavailable'))).kind, 'later');
  });

  it('needs no change where the volume is gone', async () => {
    const volume = await byHand(rig, { phase: 'Bound', finalizers: [OTHERS] });
    assert.equal((await rig.remove(volume, refusing(404, 'NotFound'))).kind, 'done');
  });

  it('is not put on a namesake that came meanwhile', async () => {
    const volume = await byHand(rig, { phase: 'Bound', finalizers: [] });
    const { name } = volume.metadata;
    const { kube } = rig;
    const replaced = kubeWith(rig, {
      async patch<T>(...args: Parameters<typeof kube.patch>) {
        await kube.delete(volumes, { name });
        await kube.create(volumes, undefined, {
          ...volume,
          metadata: { name, finalizers: [OTHERS] },
        });
        return kube.patch<T>(...args);
      },
    });
    assert.equal((await rig.remove(volume, replaced)).kind, 'retry');
    assert.equal((await finalizersOf(volume)).includes(VOLUME_FINALIZER), false);
    assert.equal(
      (await rig.remove(volume)).kind,
      'done',
      'the next run sees that its volume is gone',
    );
  });
});

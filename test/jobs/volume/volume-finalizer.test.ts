import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { VOLUME_FINALIZER } from '#src/kube/keys.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Volume } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import { kubeWith } from '../parts.ts';
import { openRig, type Rig } from '../rig.ts';
import {
  countDeletions,
  createStaticVolume,
  edit,
  listWarnings,
  readAgain,
} from '../stored-volume.ts';

const OTHERS = 'example.com/other';

describe('the finalizer of a volume', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const finalizersOf = async (volume: Volume) =>
    (await readAgain(rig, volume))?.metadata.finalizers ?? [];
  const setPolicy = (volume: Volume, persistentVolumeReclaimPolicy: string) =>
    edit(rig, volume, { spec: { persistentVolumeReclaimPolicy } });

  it('is added at the end of the list', async () => {
    const volume = await createStaticVolume(rig, { phase: 'Bound', finalizers: [OTHERS] });
    await rig.remove(volume);
    assert.deepEqual(await finalizersOf(volume), [OTHERS, VOLUME_FINALIZER]);
  });

  it('is removed from a Bound volume with the policy Retain (P-33)', async () => {
    const volume = await createStaticVolume(rig, {
      phase: 'Bound',
      finalizers: [VOLUME_FINALIZER, OTHERS],
    });
    await setPolicy(volume, 'Retain');
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.deepEqual(await finalizersOf(volume), [OTHERS]);
    assert.equal(countDeletions(rig), 0);
  });

  it('follows the policy, but is added only while the volume is Bound (R-23)', async () => {
    const volume = await createStaticVolume(rig, { phase: 'Bound' });
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
    assert.equal(countDeletions(rig), 0);
  });

  it('is removed without a finalizer that was added meanwhile', async () => {
    const volume = await createStaticVolume(rig, {
      phase: 'Bound',
      finalizers: [VOLUME_FINALIZER],
    });
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

  it('is retried after a refusal, with the list in the reason and without an event', async () => {
    const volume = await createStaticVolume(rig, { phase: 'Bound', finalizers: [OTHERS] });
    const outcome = await rig.remove(volume, refusing(403, 'Forbidden'));
    const change = `[${OTHERS} ${VOLUME_FINALIZER}] on volume ${volume.metadata.name}`;
    const reason = `failed to modify finalizers to ${change} err: no`;
    assert.ok(outcome.kind === 'retry' && outcome.reason === reason, JSON.stringify(outcome));
    assert.deepEqual(listWarnings(rig), []);
  });

  for (const [code, reason, kind, title] of [
    [
      503,
      'ServiceUnavailable',
      'later',
      'is not counted as a failure while the API server is down',
    ],
    [404, 'NotFound', 'done', 'needs no change if the PV is gone'],
  ] as const)
    it(title, async () => {
      const volume = await createStaticVolume(rig, { phase: 'Bound', finalizers: [OTHERS] });
      assert.equal((await rig.remove(volume, refusing(code, reason))).kind, kind);
    });

  it('is not added to another PV of the same name', async () => {
    const volume = await createStaticVolume(rig, { phase: 'Bound', finalizers: [] });
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

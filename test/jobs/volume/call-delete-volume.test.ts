import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Class, Volume, VolumeAttachment } from '#src/kube/objects.ts';
import { secrets } from '#src/kube/resources.ts';
import type { ProcessorPorts } from '#src/jobs/ports.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { kubeWith } from '../kube-with.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';
import { byHand, deletions, lastDeletion, released, reread, warnings } from '../stored-volume.ts';

const NAME = 'volume.kubernetes.io/provisioner-deletion-secret-name';
const NAMESPACE = 'volume.kubernetes.io/provisioner-deletion-secret-namespace';

describe('DeleteVolume', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  let named = 0;
  /** A secret under a name that no other test has. */
  async function secret(value: string): Promise<string> {
    const name = `secret-${(named += 1)}`;
    await rig.kube.create(secrets, 'default', {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name, namespace: 'default' },
      data: { token: Buffer.from(value).toString('base64') },
    });
    return name;
  }
  const annotated = (name: string) =>
    byHand(rig, { annotations: { [NAME]: name, [NAMESPACE]: 'default' } });
  const ofClass = (name: string, more: Record<string, string> = {}) => ({
    annotations: more,
    spec: {
      storageClassName: name,
      claimRef: { kind: 'PersistentVolumeClaim', namespace: 'default', name: 'c', uid: 'u' },
    },
  });
  /** The class `gold`, whose secret has this name. */
  const gold = (name: string, keys = ['name', 'namespace']): Partial<ProcessorPorts> => {
    const values: Record<string, string> = { name, namespace: 'default' };
    const parameters = Object.fromEntries(
      keys.map((key) => [`csi.storage.k8s.io/provisioner-secret-${key}`, values[key] ?? '']),
    );
    const cls: Class = {
      metadata: { name: 'gold', uid: 'g', resourceVersion: '1' },
      provisioner: DRIVER,
      parameters,
    };
    return { classOf: (asked) => (asked === 'gold' ? cls : undefined) };
  };
  const attachment = (name: string, volume: Volume, nodeName = 'node-1'): VolumeAttachment => ({
    metadata: { name, uid: name, resourceVersion: '41' },
    spec: { attacher: DRIVER, nodeName, source: { persistentVolumeName: volume.metadata.name } },
  });
  const isRemoved = async (volume: Volume): Promise<boolean> =>
    (await reread(rig, volume)) === undefined;

  describe('gets as secrets', () => {
    it('none where both annotations are empty (F-10) (F-11)', async () => {
      for (const given of [gold(await secret('x')), {}]) {
        await rig.remove(
          await byHand(rig, { ...ofClass('gold'), annotations: { [NAME]: '', [NAMESPACE]: '' } }),
          given,
        );
        assert.deepEqual(lastDeletion(rig).secrets, {});
      }
      assert.equal(deletions(rig), 2);
    });

    it('none where one annotation is empty, whatever the class says (R-20)', async () => {
      const name = await secret('x');
      const half = await byHand(rig, {
        ...ofClass('gold'),
        annotations: { [NAME]: name, [NAMESPACE]: '' },
      });
      assert.equal((await rig.remove(half, gold(name))).kind, 'done');
      assert.deepEqual(lastDeletion(rig).secrets, {});
    });

    it('what the annotated secret holds, which the class names too (F-12), or which it can’t name any more (F-13)', async () => {
      const name = await secret('mine');
      for (const given of [gold(name), {}]) {
        await rig.remove(
          await byHand(rig, {
            ...ofClass('gold'),
            annotations: { [NAME]: name, [NAMESPACE]: 'default' },
          }),
          given,
        );
        assert.deepEqual(lastDeletion(rig).secrets, { token: 'mine' });
      }
      assert.equal(deletions(rig), 2);
    });

    it('what the annotated secret holds, when the class names another one by now (F-14)', async () => {
      const volume = await byHand(rig, {
        ...ofClass('gold'),
        annotations: { [NAME]: await secret('old'), [NAMESPACE]: 'default' },
      });
      await rig.remove(volume, gold(await secret('new')));
      assert.deepEqual(lastDeletion(rig).secrets, { token: 'old' });
    });

    it('what the secret of the class holds, found by the beta annotation (F-16)', async () => {
      const change = ofClass('another', { 'volume.beta.kubernetes.io/storage-class': 'gold' });
      await rig.remove(await byHand(rig, change), gold(await secret('of the class')));
      assert.deepEqual(lastDeletion(rig).secrets, { token: 'of the class' });
    });

    it('none where the volume has no class (F-07) (F-09)', async () => {
      const { claimRef } = ofClass('').spec;
      for (const volume of [await byHand(rig), await byHand(rig, { spec: { claimRef } })]) {
        assert.equal((await rig.remove(volume, gold(await secret('x')))).kind, 'done');
        assert.deepEqual(lastDeletion(rig).secrets, {});
      }
    });

    it('none where the class is gone', async () => {
      const volume = await byHand(rig, ofClass('gone'));
      assert.equal((await rig.remove(volume)).kind, 'done');
      assert.deepEqual(lastDeletion(rig).secrets, {});
    });
  });

  describe('is not sent', () => {
    it('while the class’s secret can’t be told (F-03) (R-21)', async () => {
      const volume = await byHand(rig, ofClass('gold'));
      const broken = gold("${pvc.annotations['a']}", ['name']);
      assert.equal((await rig.remove(volume, broken)).kind, 'retry');
      assert.equal((await rig.remove(volume, broken)).kind, 'retry');
      assert.equal(deletions(rig), 0);
      assert.equal(warnings(rig).length, 1, 'the same reason again is no news');
      assert.match(
        warnings(rig)[0] ?? '',
        new RegExp(
          `^VolumeFailedDelete failed to get secretreference for volume ${volume.metadata.name}: `,
        ),
      );
    });

    it('while its secret is gone; the run parks until the secret comes (F-15)', async () => {
      const volume = await annotated('gone');
      for (let i = 0; i < 2; i += 1) {
        const outcome = await rig.remove(volume);
        assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
        assert.deepEqual(outcome.until, [
          { resource: 'secrets', namespace: 'default', name: 'gone', seen: '' },
        ]);
      }
      assert.equal(deletions(rig), 0);
      assert.deepEqual(warnings(rig), [
        "VolumeFailedDelete secret default/gone of this volume's deletion is not there; create it again",
      ]);
      assert.deepEqual(await rig.record(volume.metadata.uid), {}, 'nothing is open');
    });

    const withholding = (code: number) =>
      kubeWith(rig, {
        get: (resource, ref) =>
          resource.plural === 'secrets'
            ? Promise.reject(new KubeError({ code, reason: 'x', serverMessage: 'not for you' }))
            : rig.kube.get(resource, ref),
      });

    it('while its secret is withheld from us', async () => {
      const volume = await annotated('hidden');
      assert.equal((await rig.remove(volume, withholding(403))).kind, 'retry');
      assert.deepEqual(warnings(rig), [
        'VolumeFailedDelete error getting secret hidden in namespace default: not for you',
      ]);
      assert.equal(deletions(rig), 0);
      assert.deepEqual(await rig.record(volume.metadata.uid), {}, 'nothing is open');
    });

    it('while the API server is down, which is nobody’s fault', async () => {
      const volume = await annotated('hidden');
      assert.equal((await rig.remove(volume, withholding(503))).kind, 'later');
      assert.deepEqual([warnings(rig), deletions(rig)], [[], 0]);
      assert.deepEqual(await rig.record(volume.metadata.uid), {}, 'nothing is open');
    });

    it('while the volume is attached; the run parks until that attachment changes (F-04)', async () => {
      const volume = await released(rig);
      const outcome = await rig.remove(volume, { attachedTo: () => [attachment('va', volume)] });
      assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
      assert.deepEqual(outcome.until, [{ resource: 'volumeattachments', name: 'va', seen: '41' }]);
      assert.deepEqual(warnings(rig), [
        `VolumeFailedDelete persistentvolume ${volume.metadata.name} is still attached to node node-1`,
      ]);
      assert.equal(deletions(rig), 0);
    });

    it('while another node has it; each node is told of once', async () => {
      const volume = await byHand(rig);
      for (const node of ['node-1', 'node-1', 'node-2', 'node-2']) {
        await rig.remove(volume, { attachedTo: () => [attachment('va', volume, node)] });
      }
      assert.deepEqual(
        warnings(rig).map((text) => text.split(' ').at(-1)),
        ['node-1', 'node-2'],
      );
      assert.equal((await rig.remove(volume)).kind, 'done');
      assert.equal(deletions(rig), 1);
    });

    it('by a worker that is told to stop', async () => {
      const { reconcileVolume } = await import('#src/jobs/volume/reconcile-volume.ts');
      const volume = await byHand(rig);
      const { uid, name } = volume.metadata;
      const run = { signal: AbortSignal.abort(), lastReason: () => Promise.resolve(undefined) };
      assert.equal(
        (await reconcileVolume(rig.ports, { kind: 'volume', uid, namespace: '', name }, run)).kind,
        'later',
      );
      assert.equal(deletions(rig), 0);
    });

    it('for a volume that no CSI driver has (F-02)', async () => {
      const volume = await byHand(rig, {
        annotations: { 'pv.kubernetes.io/provisioned-by': DRIVER },
      });
      const get: ProcessorPorts['kube']['get'] = async <T>(
        ...args: Parameters<ProcessorPorts['kube']['get']>
      ) => {
        const found = await rig.kube.get<Volume>(...args);
        const { csi: _, ...spec } = found?.spec ?? {};
        // The API server lets nobody change the source of a volume.
        return (found === undefined ? undefined : { ...found, spec }) as T | undefined;
      };
      assert.equal((await rig.remove(volume, kubeWith(rig, { get }))).kind, 'retry');
      assert.deepEqual(warnings(rig), ['VolumeFailedDelete invalid CSI PV']);
      assert.equal(deletions(rig), 0);
    });
  });

  it('is sent when only another volume is attached (F-08)', async () => {
    const [volume, other] = [await byHand(rig), await byHand(rig)];
    const attachedTo = (name: string) =>
      name === other.metadata.name ? [attachment('va', other)] : [];
    assert.equal((await rig.remove(volume, { attachedTo })).kind, 'done');
    assert.ok(await isRemoved(volume));
    assert.equal((await rig.remove(other, { attachedTo })).kind, 'parked');
  });

  describe('that fails', () => {
    const answerWith = (code: number, message = 'busy disk'): void => {
      rig.onCall = ({ method }) => {
        if (method === 'DeleteVolume') throw new DriverStatus(code, message);
      };
    };

    it('is told once, in the driver’s words, and tried again (P-11)', async () => {
      const volume = await released(rig);
      answerWith(Code.Internal);
      assert.equal((await rig.remove(volume)).kind, 'retry');
      assert.equal((await rig.remove(volume)).kind, 'retry');
      assert.deepEqual(warnings(rig), [
        'VolumeFailedDelete rpc error: code = Internal desc = busy disk',
      ]);
      rig.onCall = () => undefined;
      assert.equal((await rig.remove(volume)).kind, 'done');
    });

    it('is told again when it fails in another way', async () => {
      const volume = await byHand(rig);
      for (const code of [Code.Internal, Code.NotFound, Code.NotFound]) {
        answerWith(code);
        await rig.remove(volume);
      }
      assert.equal(warnings(rig).length, 2);
    });

    it('is told again when the driver gives another reason under the same code, also with something else between', async () => {
      const volume = await byHand(rig);
      const attachedTo = () => [attachment('va', volume)];
      for (const [message, change] of [
        ['in use', {}],
        ['locked', {}],
        ['', { attachedTo }],
        ['locked', {}],
      ] as const) {
        answerWith(Code.FailedPrecondition, message);
        await rig.remove(volume, change);
      }
      const said = (words: string) =>
        `VolumeFailedDelete rpc error: code = FailedPrecondition desc = ${words}`;
      const attached = `VolumeFailedDelete persistentvolume ${volume.metadata.name} is still attached to node node-1`;
      assert.deepEqual(warnings(rig), [said('in use'), said('locked'), attached, said('locked')]);
    });

    it('because the driver is still at it is told when it finds other words for that, and not again', async () => {
      const volume = await byHand(rig);
      for (const code of [Code.DeadlineExceeded, Code.Aborted, Code.Aborted]) {
        answerWith(code);
        assert.equal((await rig.remove(volume)).kind, 'running');
      }
      assert.equal(warnings(rig).length, 2);
    });

    it('does not show the secrets that it was given', async () => {
      const volume = await annotated(await secret('hush-hush'));
      answerWith(Code.Internal, 'login with hush-hush refused');
      const outcome = await rig.remove(volume);
      assert.ok(!JSON.stringify([outcome, rig.events]).includes('hush-hush'));
      assert.equal(warnings(rig).length, 1);
    });
  });
});

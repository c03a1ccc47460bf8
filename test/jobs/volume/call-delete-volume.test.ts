import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Class, Volume, VolumeAttachment } from '#src/kube/objects.ts';
import { secrets } from '#src/kube/resources.ts';
import { group, type Parts } from '../parts.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { kubeWith } from '../kube-with.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';
import {
  createStaticVolume,
  countDeletions,
  lastDeletion,
  createReleasedVolume,
  readAgain,
  listWarnings,
} from '../stored-volume.ts';

const NAME = 'volume.kubernetes.io/provisioner-deletion-secret-name';
const NAMESPACE = 'volume.kubernetes.io/provisioner-deletion-secret-namespace';

describe('DeleteVolume', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  let names = 0;
  /** Creates a secret and returns its name, which no other test has. */
  async function secret(value: string): Promise<string> {
    const name = `secret-${(names += 1)}`;
    await rig.kube.create(secrets, 'default', {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name, namespace: 'default' },
      data: { token: Buffer.from(value).toString('base64') },
    });
    return name;
  }
  const annotated = (name: string) =>
    createStaticVolume(rig, { annotations: { [NAME]: name, [NAMESPACE]: 'default' } });
  const ofClass = (name: string, more: Record<string, string> = {}) => ({
    annotations: more,
    spec: {
      storageClassName: name,
      claimRef: { kind: 'PersistentVolumeClaim', namespace: 'default', name: 'c', uid: 'u' },
    },
  });
  /** The class `gold`, whose secret has this name. */
  const gold = (name: string, keys = ['name', 'namespace']): Partial<Parts> => {
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
    (await readAgain(rig, volume)) === undefined;

  describe('gets as secrets', () => {
    it('none if both annotations are empty (F-10) (F-11)', async () => {
      for (const given of [gold(await secret('x')), {}]) {
        await rig.remove(
          await createStaticVolume(rig, {
            ...ofClass('gold'),
            annotations: { [NAME]: '', [NAMESPACE]: '' },
          }),
          given,
        );
        assert.deepEqual(lastDeletion(rig).secrets, {});
      }
      assert.equal(countDeletions(rig), 2);
    });

    it('none if one annotation is empty, even if the class names a secret (R-20)', async () => {
      const name = await secret('x');
      const half = await createStaticVolume(rig, {
        ...ofClass('gold'),
        annotations: { [NAME]: name, [NAMESPACE]: '' },
      });
      assert.equal((await rig.remove(half, gold(name))).kind, 'done');
      assert.deepEqual(lastDeletion(rig).secrets, {});
    });

    it('the values of the annotated secret, with its class (F-12) and without (F-13)', async () => {
      const name = await secret('mine');
      for (const given of [gold(name), {}]) {
        await rig.remove(
          await createStaticVolume(rig, {
            ...ofClass('gold'),
            annotations: { [NAME]: name, [NAMESPACE]: 'default' },
          }),
          given,
        );
        assert.deepEqual(lastDeletion(rig).secrets, { token: 'mine' });
      }
      assert.equal(countDeletions(rig), 2);
    });

    it('the values of the annotated secret if the class names another one now (F-14)', async () => {
      const volume = await createStaticVolume(rig, {
        ...ofClass('gold'),
        annotations: { [NAME]: await secret('old'), [NAMESPACE]: 'default' },
      });
      await rig.remove(volume, gold(await secret('new')));
      assert.deepEqual(lastDeletion(rig).secrets, { token: 'old' });
    });

    it('the values of the class’s secret, by the beta annotation of the class (F-16)', async () => {
      const change = ofClass('another', { 'volume.beta.kubernetes.io/storage-class': 'gold' });
      await rig.remove(await createStaticVolume(rig, change), gold(await secret('of the class')));
      assert.deepEqual(lastDeletion(rig).secrets, { token: 'of the class' });
    });

    it('none if the volume has no class (F-07) (F-09)', async () => {
      const { claimRef } = ofClass('').spec;
      for (const volume of [
        await createStaticVolume(rig),
        await createStaticVolume(rig, { spec: { claimRef } }),
      ]) {
        assert.equal((await rig.remove(volume, gold(await secret('x')))).kind, 'done');
        assert.deepEqual(lastDeletion(rig).secrets, {});
      }
    });

    it('none if the class is gone', async () => {
      const volume = await createStaticVolume(rig, ofClass('gone'));
      assert.equal((await rig.remove(volume)).kind, 'done');
      assert.deepEqual(lastDeletion(rig).secrets, {});
    });
  });

  describe('is not sent', () => {
    it('while the class’s secret reference is invalid (F-03) (R-21)', async () => {
      const volume = await createStaticVolume(rig, ofClass('gold'));
      const broken = gold("${pvc.annotations['a']}", ['name']);
      assert.equal((await rig.remove(volume, broken)).kind, 'retry');
      assert.equal((await rig.remove(volume, broken)).kind, 'retry');
      assert.equal(countDeletions(rig), 0);
      assert.equal(listWarnings(rig).length, 1, 'the same reason gets no second event');
      assert.match(
        listWarnings(rig)[0] ?? '',
        new RegExp(
          `^VolumeFailedDelete failed to get secretreference for volume ${volume.metadata.name}: `,
        ),
      );
    });

    it('while its secret is missing; the volume parks on the secret (F-15)', async () => {
      const volume = await annotated('gone');
      for (const _ of [1, 2]) {
        const outcome = await rig.remove(volume);
        assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
        assert.deepEqual(outcome.until, [
          { resource: 'secrets', namespace: 'default', name: 'gone', seen: '' },
        ]);
      }
      assert.equal(countDeletions(rig), 0);
      assert.deepEqual(listWarnings(rig), [
        "VolumeFailedDelete secret default/gone of this volume's deletion is not there; " +
          'create it again',
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

    it('while reading its secret is forbidden', async () => {
      const volume = await annotated('hidden');
      assert.equal((await rig.remove(volume, withholding(403))).kind, 'retry');
      assert.deepEqual(listWarnings(rig), [
        'VolumeFailedDelete error getting secret hidden in namespace default: not for you; ' +
          'sutler is given no secrets by default: bind that account to a Role in the namespace of ' +
          'the secret that may get it (k8s/secrets-by-name)',
      ]);
      assert.equal(countDeletions(rig), 0);
      assert.deepEqual(await rig.record(volume.metadata.uid), {}, 'nothing is open');
    });

    it('while the API server is down', async () => {
      const volume = await annotated('hidden');
      assert.equal((await rig.remove(volume, withholding(503))).kind, 'later');
      assert.deepEqual([listWarnings(rig), countDeletions(rig)], [[], 0]);
      assert.deepEqual(await rig.record(volume.metadata.uid), {}, 'nothing is open');
    });

    it('while the volume is attached; it parks on the attachment (F-04)', async () => {
      const volume = await createReleasedVolume(rig);
      const outcome = await rig.remove(volume, { attachedTo: () => [attachment('va', volume)] });
      assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
      assert.deepEqual(outcome.until, [{ resource: 'volumeattachments', name: 'va', seen: '41' }]);
      assert.deepEqual(listWarnings(rig), [
        `VolumeFailedDelete persistentvolume ${volume.metadata.name} is still attached to node node-1`,
      ]);
      assert.equal(countDeletions(rig), 0);
    });

    it('while it is attached; each node is reported once', async () => {
      const volume = await createStaticVolume(rig);
      for (const node of ['node-1', 'node-1', 'node-2', 'node-2']) {
        await rig.remove(volume, { attachedTo: () => [attachment('va', volume, node)] });
      }
      assert.deepEqual(
        listWarnings(rig).map((text) => text.split(' ').at(-1)),
        ['node-1', 'node-2'],
      );
      assert.equal((await rig.remove(volume)).kind, 'done');
      assert.equal(countDeletions(rig), 1);
    });

    it('by a worker that is stopping', async () => {
      const { reconcileVolume } = await import('#src/jobs/volume/reconcile-volume.ts');
      const volume = await createStaticVolume(rig);
      const { uid, name } = volume.metadata;
      const run = {
        signal: AbortSignal.abort(),
        reachedDriver: () => undefined,
        lastReason: () => Promise.resolve(undefined),
      };
      assert.equal(
        (await reconcileVolume(group(rig.parts), { kind: 'volume', uid, namespace: '', name }, run))
          .kind,
        'later',
      );
      assert.equal(countDeletions(rig), 0);
    });

    it('for a PV that is no CSI volume (F-02)', async () => {
      const volume = await createStaticVolume(rig, {
        annotations: { 'pv.kubernetes.io/provisioned-by': DRIVER },
      });
      const get: Parts['kube']['get'] = async <T>(...args: Parameters<Parts['kube']['get']>) => {
        const found = await rig.kube.get<Volume>(...args);
        const { csi: _, ...spec } = found?.spec ?? {};
        // The API server does not allow a change of a volume's source.
        return (found === undefined ? undefined : { ...found, spec }) as T | undefined;
      };
      assert.equal((await rig.remove(volume, kubeWith(rig, { get }))).kind, 'retry');
      assert.deepEqual(listWarnings(rig), ['VolumeFailedDelete invalid CSI PV']);
      assert.equal(countDeletions(rig), 0);
    });
  });

  it('is sent if only another volume is attached (F-08)', async () => {
    const [volume, other] = [await createStaticVolume(rig), await createStaticVolume(rig)];
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

    it('is reported once, with the driver’s message, and retried (P-11)', async () => {
      const volume = await createReleasedVolume(rig);
      answerWith(Code.Internal);
      assert.equal((await rig.remove(volume)).kind, 'retry');
      assert.equal((await rig.remove(volume)).kind, 'retry');
      assert.deepEqual(listWarnings(rig), [
        'VolumeFailedDelete rpc error: code = Internal desc = busy disk',
      ]);
      rig.onCall = () => undefined;
      assert.equal((await rig.remove(volume)).kind, 'done');
    });

    it('is reported again when the code changes', async () => {
      const volume = await createStaticVolume(rig);
      for (const code of [Code.Internal, Code.NotFound, Code.NotFound]) {
        answerWith(code);
        await rig.remove(volume);
      }
      assert.equal(listWarnings(rig).length, 2);
    });

    it('is reported with each new message, also after another failure', async () => {
      const volume = await createStaticVolume(rig);
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
      const warning = (details: string) =>
        `VolumeFailedDelete rpc error: code = FailedPrecondition desc = ${details}`;
      const { name } = volume.metadata;
      const attached = `persistentvolume ${name} is still attached to node node-1`;
      assert.deepEqual(listWarnings(rig), [
        warning('in use'),
        warning('locked'),
        `VolumeFailedDelete ${attached}`,
      ]);
    });

    it('because it still runs is reported again only when the message changes', async () => {
      const volume = await createStaticVolume(rig);
      for (const code of [Code.DeadlineExceeded, Code.Aborted, Code.Aborted]) {
        answerWith(code);
        assert.equal((await rig.remove(volume)).kind, 'running');
      }
      assert.equal(listWarnings(rig).length, 2);
    });

    it('does not show the secrets that it was given', async () => {
      const volume = await annotated(await secret('hush-hush'));
      answerWith(Code.Internal, 'login with hush-hush refused');
      const outcome = await rig.remove(volume);
      assert.ok(!JSON.stringify([outcome, rig.events]).includes('hush-hush'));
      assert.equal(listWarnings(rig).length, 1);
    });
  });
});

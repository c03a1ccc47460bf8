import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Class, Volume, VolumeAttachment } from '#src/kube/objects.ts';
import { secrets } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { kubeWith } from '../parts.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';
import {
  countDeletions,
  createReleasedVolume,
  createStaticVolume,
  lastDeletion,
  listWarnings,
  readAgain,
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
  const gold = (name: string, keys = ['name', 'namespace']): Partial<Dependencies> => {
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
  });

  describe('is not sent', () => {
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
      assert.equal(await rig.doubtMs(volume), undefined, 'nothing is begun');
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
      assert.equal(await rig.doubtMs(volume), undefined, 'nothing is begun');
    });

    it('while the API server is down', async () => {
      const volume = await annotated('hidden');
      assert.equal((await rig.remove(volume, withholding(503))).kind, 'later');
      assert.deepEqual([listWarnings(rig), countDeletions(rig)], [[], 0]);
      assert.equal(await rig.doubtMs(volume), undefined, 'nothing is begun');
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

    it('by a worker that is stopping', async () => {
      const { reconcileVolume } = await import('#src/jobs/volume/reconcile-volume.ts');
      const volume = await createStaticVolume(rig);
      const { uid, name } = volume.metadata;
      const run = {
        signal: AbortSignal.abort(),
        queuedMs: 0,
        count: 1,
        lastStatus: () => Promise.resolve(undefined),
        facts: {},
        begun: () => Promise.resolve({ leftMs: undefined, place: '' }),
        mark: () => Promise.reject(new Error('marked')),
      };
      assert.equal(
        (await reconcileVolume(rig.parts, { kind: 'volume', uid, namespace: '', name }, run)).kind,
        'later',
      );
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

    it('leaves its job in doubt unless the driver itself has refused it', async () => {
      const volume = await createReleasedVolume(rig);
      const isMarkedAfter = async (code: number): Promise<boolean> => {
        answerWith(code);
        await rig.remove(volume);
        return (await rig.doubtMs(volume)) !== undefined;
      };
      assert.equal(await isMarkedAfter(Code.Internal), false);
      assert.equal(await isMarkedAfter(Code.Unavailable), true);
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

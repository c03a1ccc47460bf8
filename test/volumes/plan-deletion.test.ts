import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Class, Volume, VolumeAttachment } from '#src/kube/objects.ts';
import { type DeletionContext, planDeletion } from '#src/volumes/deletion.ts';
import { aClass, aVolume, driver } from './builders.ts';

function attachment(
  name: string,
  change: Partial<VolumeAttachment['metadata']> = {},
  nodeName = `node-of-${name}`,
): VolumeAttachment {
  return {
    metadata: { name, uid: `uid-${name}`, resourceVersion: '7', ...change },
    spec: { attacher: 'a', nodeName, source: { persistentVolumeName: 'test-testi' } },
  };
}

const plan = (volume: Volume, change: Partial<DeletionContext> = {}) =>
  planDeletion(volume, { driver, classOf: () => undefined, attachedTo: () => [], ...change });
const refusal = (volume: Volume, change: Partial<DeletionContext> = {}): string | undefined => {
  const made = plan(volume, change);
  return made.kind === 'refuse' ? made.message : undefined;
};
const withoutCsi = (spec: Partial<Volume['spec']> = {}): Volume => {
  const { csi: _, ...rest } = aVolume().spec;
  return { ...aVolume(), spec: { ...rest, ...spec } };
};

describe('planDeletion', () => {
  const attachedTo = () => [attachment('a')];
  const brokenClass = (): Class =>
    aClass({ parameters: { 'csi.storage.k8s.io/provisioner-secret-name': 'half' } });
  const ofClass = (change: Partial<Volume['spec']> = {}) =>
    aVolume({ metadata: { annotations: {} }, spec: { storageClassName: 'class', ...change } });

  it('uses a CSI volume’s own handle (G-11)', () => {
    assert.deepEqual(plan(aVolume()), {
      kind: 'delete',
      handle: 'test-volume-id',
      isMigrated: false,
      secret: {},
    });
  });

  it('translates the handle of an in-tree volume for its driver (G-10)', () => {
    const volume = withoutCsi({ gcePersistentDisk: { pdName: 'disk' } });
    const labelled = {
      ...volume,
      metadata: { ...volume.metadata, labels: { 'topology.kubernetes.io/zone': 'us-a1-b' } },
    };
    assert.deepEqual(plan(labelled, { driver: { ...driver, name: 'pd.csi.storage.gke.io' } }), {
      kind: 'delete',
      handle: 'projects/UNSPECIFIED/zones/us-a1-b/disks/disk',
      isMigrated: true,
      secret: {},
    });
  });

  it('refuses a volume of another driver, whatever its annotations say', () => {
    assert.match(
      refusal(aVolume({ spec: { csi: { driver: 'other', volumeHandle: 'h' } } })) ?? '',
      /^the volume is of driver other, not of test-driver/,
    );
  });

  it('refuses a volume of no CSI driver (F-02)', () =>
    assert.equal(refusal(withoutCsi()), 'invalid CSI PV'));

  it('refuses an in-tree volume that can’t be translated, and says why', () => {
    const azureDisk = { diskName: 'd', diskURI: 'u', kind: 'Dedicated' };
    assert.equal(
      refusal(withoutCsi({ azureDisk })),
      'kind(Dedicated) is not supported in csi migration',
    );
  });

  for (const [capability, change] of [
    ['plugin CONTROLLER_SERVICE', { pluginCapabilities: new Set<string>() }],
    ['controller CREATE_DELETE_VOLUME', { controllerCapabilities: new Set<string>() }],
  ] as const) {
    it(`refuses if the driver has no ${capability}`, () => {
      assert.equal(
        refusal(aVolume(), { driver: { ...driver, ...change } }),
        `CSI driver does not support dynamic provisioning: ${capability} capability is not ` +
          'reported',
      );
    });
  }

  for (const [title, found] of [
    ['that is attached (F-04)', { ...attachment('a'), status: { attached: true } }],
    [
      'that is not attached yet, or not any more (F-05)',
      { ...attachment('a'), status: { attached: false } },
    ],
    ['that is being detached (F-06)', attachment('a', { deletionTimestamp: 'now' })],
  ] as const) {
    it(`refuses a volume with an attachment ${title} until that changes`, () => {
      assert.deepEqual(plan(ofClass(), { attachedTo: () => [found], classOf: () => aClass() }), {
        kind: 'refuse',
        message: 'persistentvolume test-testi is still attached to node node-of-a',
        waitsFor: [{ resource: 'volumeattachments', name: 'a', seen: '7' }],
      });
    });
  }

  it('names the same one of several attachments on every retry', () => {
    for (const order of [
      ['a', 'b'],
      ['b', 'a'],
    ]) {
      const message = refusal(aVolume(), {
        attachedTo: () => order.map((name) => attachment(name)),
      });
      assert.equal(message, 'persistentvolume test-testi is still attached to node node-of-a');
    }
  });

  it('asks only for the attachments of this volume (F-08)', () => {
    const asked: string[] = [];
    assert.equal(plan(aVolume(), { attachedTo: (name) => (asked.push(name), []) }).kind, 'delete');
    assert.deepEqual(asked, ['test-testi']);
  });

  it('lets the error of a defect pass', () => {
    const attachedTo = (): never => {
      throw new Error('a defect');
    };
    assert.throws(() => plan(aVolume(), { attachedTo }), { name: 'Error', message: 'a defect' });
  });

  it('checks the source first, then capabilities, the secret and attachments', () => {
    const lame = { ...driver, controllerCapabilities: new Set<string>() };
    const found = [
      refusal(withoutCsi({ storageClassName: 'class' }), {
        driver: lame,
        classOf: brokenClass,
        attachedTo,
      }),
      refusal(ofClass(), { driver: lame, classOf: brokenClass, attachedTo }),
      refusal(ofClass(), { classOf: brokenClass, attachedTo }),
      refusal(ofClass(), { attachedTo }),
    ];
    assert.deepEqual(
      found.map((message) => message?.split(' ').slice(0, 3).join(' ')),
      ['invalid CSI PV', 'CSI driver does', 'failed to get', 'persistentvolume test-testi is'],
    );
  });
});

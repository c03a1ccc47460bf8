import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Class, Volume, VolumeAttachment } from '#src/kube/objects.ts';
import { type DeletionContext, planDeletion } from '#src/volumes/deletion.ts';
import { aClass, aVolume, driver } from './builders.ts';

function attachment(
  name: string,
  change: Partial<VolumeAttachment['metadata']> = {},
): VolumeAttachment {
  return {
    metadata: { name, uid: `uid-${name}`, resourceVersion: '7', ...change },
    spec: {
      attacher: 'a',
      nodeName: `node-of-${name}`,
      source: { persistentVolumeName: 'test-testi' },
    },
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
  const deletes = { kind: 'delete', secret: {} };
  it('uses a CSI volume’s own handle (G-11)', () =>
    assert.deepEqual(plan(aVolume()), { ...deletes, handle: 'test-volume-id', isMigrated: false }));

  it('translates the handle of an in-tree volume for its driver (G-10)', () => {
    const volume = withoutCsi({ gcePersistentDisk: { pdName: 'disk' } });
    const labels = { 'topology.kubernetes.io/zone': 'us-a1-b' };
    const labelled = { ...volume, metadata: { ...volume.metadata, labels } };
    assert.deepEqual(plan(labelled, { driver: { ...driver, name: 'pd.csi.storage.gke.io' } }), {
      ...deletes,
      handle: 'projects/UNSPECIFIED/zones/us-a1-b/disks/disk',
      isMigrated: true,
    });
  });

  const lame = { ...driver, controllerCapabilities: new Set<string>() };
  const azureDisk = { diskName: 'd', diskURI: 'u', kind: 'Dedicated' };
  const refusals: Readonly<Record<string, readonly [Volume, Partial<DeletionContext>, string]>> = {
    'a volume of another driver, whatever its annotations say': [
      aVolume({ spec: { csi: { driver: 'other', volumeHandle: 'h' } } }),
      {},
      'the volume is of driver other, not of test-driver: correct the annotation ' +
        'pv.kubernetes.io/provisioned-by, or delete the volume by hand',
    ],
    'a volume of no CSI driver (F-02)': [withoutCsi(), {}, 'invalid CSI PV'],
    'an in-tree volume that can’t be translated, and says why': [
      withoutCsi({ azureDisk }),
      {},
      'kind(Dedicated) is not supported in csi migration',
    ],
    'a deletion if the driver can’t delete': [
      aVolume(),
      { driver: lame },
      'CSI driver does not support dynamic provisioning: controller CREATE_DELETE_VOLUME ' +
        'capability is not reported',
    ],
  };
  for (const [title, [volume, change, message]] of Object.entries(refusals))
    it(`refuses ${title}`, () => assert.equal(refusal(volume, change), message));

  for (const [title, found] of [
    ['that is attached (F-04)', { ...attachment('a'), status: { attached: true } }],
    [
      'that is not attached yet or any more (F-05)',
      { ...attachment('a'), status: { attached: false } },
    ],
    ['that is being detached (F-06)', attachment('a', { deletionTimestamp: 'now' })],
  ] as const) {
    it(`refuses a volume with an attachment ${title} until that changes`, () => {
      assert.deepEqual(plan(aVolume(), { attachedTo: () => [found] }), {
        kind: 'refuse',
        message: 'persistentvolume test-testi is still attached to node node-of-a',
        waitsFor: [{ resource: 'volumeattachments', name: 'a', seen: '7' }],
      });
    });
  }

  it('names the same one of several attachments on every retry', () => {
    const attachedTo = () => [attachment('b'), attachment('a')];
    assert.match(refusal(aVolume(), { attachedTo }) ?? '', /attached to node node-of-a$/);
  });

  it('asks only for the attachments of this volume (F-08)', () => {
    const attachedTo = (name: string) => (name === 'test-testi' ? [] : [attachment('a')]);
    assert.equal(plan(aVolume(), { attachedTo }).kind, 'delete');
  });

  it('checks the source first, then capabilities, the secret and attachments', () => {
    const storageClassName = 'class';
    const volume = aVolume({ metadata: { annotations: {} }, spec: { storageClassName } });
    const attachedTo = () => [attachment('a')];
    const classOf = (): Class =>
      aClass({ parameters: { 'csi.storage.k8s.io/provisioner-secret-name': 'half' } });
    const found = [
      refusal(withoutCsi({ storageClassName }), { driver: lame, classOf, attachedTo }),
      refusal(volume, { driver: lame, classOf, attachedTo }),
      refusal(volume, { classOf, attachedTo }),
      refusal(volume, { attachedTo }),
    ];
    assert.deepEqual(
      found.map((message) => message?.split(' ').slice(0, 3).join(' ')),
      ['invalid CSI PV', 'CSI driver does', 'failed to get', 'persistentvolume test-testi is'],
    );
  });
});

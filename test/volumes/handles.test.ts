import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { handleHash, handleOf, isSameVolume, mayBeSame } from '#src/volumes/handles.ts';
import type { VolumeParts } from '#src/migration/in-tree-plugin.ts';

const csi = (volumeHandle: string, driver = 'ebs.csi.aws.com'): VolumeParts => ({
  metadata: { name: 'volume' },
  spec: { csi: { driver, volumeHandle } },
});
const inTree = (volumeID: string): VolumeParts => ({
  metadata: { name: 'volume' },
  spec: { awsElasticBlockStore: { volumeID } },
});
const none: VolumeParts = { metadata: { name: 'volume' }, spec: {} };

describe('handleOf', () => {
  it('is the driver’s handle', () =>
    assert.deepEqual(handleOf(csi('vol-1')), { driver: 'ebs.csi.aws.com', handle: 'vol-1' }));

  it('is translated for an in-tree PV', () => {
    assert.deepEqual(handleOf(inTree('vol-1')), { driver: 'ebs.csi.aws.com', handle: 'vol-1' });
  });

  it('is undefined for a PV of no CSI driver', () => assert.equal(handleOf(none), undefined));
});

const FORMS: readonly {
  readonly form: string;
  readonly of: (id: string) => VolumeParts['spec'];
}[] = [
  { form: 'CSI', of: (id) => ({ csi: { driver: 'd', volumeHandle: id } }) },
  { form: 'gce-pd', of: (pdName) => ({ gcePersistentDisk: { pdName } }) },
  { form: 'aws-ebs', of: (volumeID) => ({ awsElasticBlockStore: { volumeID } }) },
  { form: 'cinder', of: (volumeID) => ({ cinder: { volumeID } }) },
  { form: 'azure-disk', of: (diskURI) => ({ azureDisk: { diskURI, diskName: 'n' } }) },
  { form: 'azure-file', of: (shareName) => ({ azureFile: { shareName, secretName: 's' } }) },
  { form: 'vsphere-volume', of: (volumePath) => ({ vsphereVolume: { volumePath } }) },
  { form: 'portworx-volume', of: (volumeID) => ({ portworxVolume: { volumeID } }) },
];

describe('two PVs', () => {
  for (const { form, of } of FORMS) {
    it(`of the form ${form} stand for one volume if their ids are equal`, () => {
      const one = { metadata: { name: 'volume' }, spec: of('1') };
      assert.ok(isSameVolume(one, { ...one, spec: of('1') }));
      assert.ok(!isSameVolume(one, { ...one, spec: of('2') }));
    });
  }

  it('stand for one volume whatever their labels', () => {
    const disk = (labels: Record<string, string>): VolumeParts => ({
      metadata: { name: 'volume', labels },
      spec: { gcePersistentDisk: { pdName: 'disk' } },
    });
    assert.ok(isSameVolume(disk({ 'topology.kubernetes.io/zone': 'us-a-b' }), disk({})));
  });

  it('of Azure File differ by the namespace of the secret, by default the claim’s', () => {
    const share = (secretNamespace: string | undefined, namespace: string): VolumeParts => ({
      metadata: { name: 'volume' },
      spec: {
        azureFile: {
          shareName: 'share',
          secretName: 's',
          ...(secretNamespace === undefined ? {} : { secretNamespace }),
        },
        claimRef: { namespace, name: 'claim', uid: 'uid' },
      },
    });
    assert.ok(isSameVolume(share(undefined, 'a'), share('a', 'b')));
    assert.ok(!isSameVolume(share(undefined, 'a'), share(undefined, 'b')));
  });

  it('are not the same if an in-tree source names no volume', () => {
    assert.ok(!isSameVolume(inTree(''), inTree('')));
  });

  it('are not the same in different forms, or without a source', () => {
    assert.ok(!isSameVolume(csi('vol-1'), inTree('vol-1')));
    assert.ok(!isSameVolume(csi('vol-1'), csi('vol-1', 'other')));
    assert.ok(!isSameVolume(none, none));
  });
});

describe('mayBeSame', () => {
  const disk = (zone?: string, pdName = 'disk'): VolumeParts => ({
    metadata: {
      name: 'volume',
      ...(zone === undefined ? {} : { labels: { 'topology.kubernetes.io/zone': zone } }),
    },
    spec: { gcePersistentDisk: { pdName } },
  });

  it('is true for two PVs with the same id', () => {
    assert.ok(mayBeSame(csi('vol-1'), inTree('vol-1')));
    assert.ok(!mayBeSame(csi('vol-1'), csi('vol-2')));
    assert.ok(!mayBeSame(csi('vol-1'), csi('vol-1', 'other')));
    assert.ok(!mayBeSame(none, none));
  });

  it('is false for GCE disks in different zones', () => {
    assert.ok(!mayBeSame(disk('us-a-b'), disk('us-a-c')));
    assert.ok(mayBeSame(disk('us-a-b'), disk('us-a-b')));
    assert.ok(mayBeSame(disk('us-a-b__us-a-c'), disk('us-a-c__us-a-d')));
  });

  it('is true for GCE disks if one has no zone or another form', () => {
    assert.ok(mayBeSame(disk('us-a-b'), disk()));
    assert.ok(mayBeSame(disk(), disk('us-a-b')));
    const asCsi = {
      metadata: { name: 'volume' },
      spec: { csi: { driver: 'pd.csi.storage.gke.io', volumeHandle: 'disk' } },
    };
    assert.ok(mayBeSame(disk('us-a-b'), asCsi));
    assert.ok(mayBeSame(asCsi, disk('us-a-b')));
  });
});

it('handleHash depends on driver and id, and not on the form of the PV', () => {
  const volume = { driver: 'd.example', id: 'h', form: 'csi' } as const;
  assert.equal(handleHash(volume), handleHash({ ...volume, form: 'gcePersistentDisk' }));
  assert.notEqual(handleHash(volume), handleHash({ ...volume, id: 'other' }));
  assert.notEqual(handleHash(volume), handleHash({ ...volume, driver: 'other.example' }));
});

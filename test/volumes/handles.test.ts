import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compareVolumes, handleOf, mayBeSame } from '#src/volumes/handles.ts';
import type { VolumeParts } from '#src/volumes/migration/volume-parts.ts';

const csi = (volumeHandle: string, driver = 'ebs.csi.aws.com'): VolumeParts => ({
  metadata: { name: 'volume' },
  spec: { csi: { driver, volumeHandle } },
});
const inTree = (volumeID: string): VolumeParts => ({
  metadata: { name: 'volume' },
  spec: { awsElasticBlockStore: { volumeID } },
});
const none: VolumeParts = { metadata: { name: 'volume' }, spec: {} };

describe('the volume behind a PV', () => {
  it('is the driver’s handle', () =>
    assert.deepEqual(handleOf(csi('vol-1')), { driver: 'ebs.csi.aws.com', handle: 'vol-1' }));

  it('is found in a PV of in-tree form too', () => {
    assert.deepEqual(handleOf(inTree('vol-1')), { driver: 'ebs.csi.aws.com', handle: 'vol-1' });
  });

  it('is none where the PV stands for no CSI volume', () =>
    assert.equal(handleOf(none), undefined));
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
    it(`of the form ${form} stand for one volume where what identifies it is the same`, () => {
      const one = { metadata: { name: 'volume' }, spec: of('1') };
      assert.equal(compareVolumes(one, { ...one, spec: of('1') }), 'same');
      assert.equal(compareVolumes(one, { ...one, spec: of('2') }), 'other');
    });
  }

  it('are one volume whatever labels somebody gave to one of them', () => {
    const disk = (labels: Record<string, string>): VolumeParts => ({
      metadata: { name: 'volume', labels },
      spec: { gcePersistentDisk: { pdName: 'disk' } },
    });
    assert.equal(
      compareVolumes(disk({ 'topology.kubernetes.io/zone': 'us-a-b' }), disk({})),
      'same',
    );
  });

  it('of Azure File are two where one’s Secret is in another namespace, which is the claim’s unless the PV names one', () => {
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
    assert.equal(compareVolumes(share(undefined, 'a'), share('a', 'b')), 'same');
    assert.equal(compareVolumes(share(undefined, 'a'), share(undefined, 'b')), 'other');
  });

  it('can’t be compared where a source of in-tree form names no volume', () => {
    assert.equal(compareVolumes(inTree(''), inTree('')), 'unclear');
  });

  it('can’t be told apart in different forms, or without any', () => {
    assert.equal(compareVolumes(csi('vol-1'), inTree('vol-1')), 'unclear');
    assert.equal(compareVolumes(csi('vol-1'), csi('vol-1', 'other')), 'unclear');
    assert.equal(compareVolumes(none, none), 'unclear');
  });
});

describe('one volume', () => {
  const disk = (zone?: string, pdName = 'disk'): VolumeParts => ({
    metadata: {
      name: 'volume',
      ...(zone === undefined ? {} : { labels: { 'topology.kubernetes.io/zone': zone } }),
    },
    spec: { gcePersistentDisk: { pdName } },
  });

  it('may be behind two PVs that name the same', () => {
    assert.ok(mayBeSame(csi('vol-1'), inTree('vol-1')));
    assert.ok(!mayBeSame(csi('vol-1'), csi('vol-2')));
    assert.ok(!mayBeSame(csi('vol-1'), csi('vol-1', 'other')));
    assert.ok(!mayBeSame(none, none));
  });

  it('is not behind two PVs of a GCE disk whose zones are others', () => {
    assert.ok(!mayBeSame(disk('us-a-b'), disk('us-a-c')));
    assert.ok(mayBeSame(disk('us-a-b'), disk('us-a-b')));
    assert.ok(mayBeSame(disk('us-a-b__us-a-c'), disk('us-a-c__us-a-d')));
  });

  it('may be behind two PVs of a GCE disk where one does not say its zone, or has another form', () => {
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

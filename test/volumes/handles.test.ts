import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { handleHash, handleOf, isSameVolume, mayBeSame } from '#src/volumes/handles.ts';
import type { VolumeParts } from '#src/migration/in-tree-plugin.ts';

const pv = (spec: VolumeParts['spec'], labels?: Record<string, string>): VolumeParts => ({
  metadata: { name: 'volume', ...(labels === undefined ? {} : { labels }) },
  spec,
});
const csi = (volumeHandle: string, driver = 'ebs.csi.aws.com') =>
  pv({ csi: { driver, volumeHandle } });
const inTree = (volumeID: string) => pv({ awsElasticBlockStore: { volumeID } });
const none = pv({});
const disk = (zone?: string) =>
  pv(
    { gcePersistentDisk: { pdName: 'disk' } },
    zone === undefined ? undefined : { 'topology.kubernetes.io/zone': zone },
  );

describe('handleOf', () => {
  const expected = { driver: 'ebs.csi.aws.com', handle: 'vol-1' };
  it('is the driver’s handle', () => assert.deepEqual(handleOf(csi('vol-1')), expected));
  it('is translated for an in-tree PV', () =>
    assert.deepEqual(handleOf(inTree('vol-1')), expected));
  it('is undefined for a PV of no CSI driver', () => assert.equal(handleOf(none), undefined));
});

const FORMS: Readonly<Record<string, (id: string) => VolumeParts['spec']>> = {
  CSI: (id) => ({ csi: { driver: 'd', volumeHandle: id } }),
  'gce-pd': (pdName) => ({ gcePersistentDisk: { pdName } }),
  'aws-ebs': (volumeID) => ({ awsElasticBlockStore: { volumeID } }),
  cinder: (volumeID) => ({ cinder: { volumeID } }),
  'azure-disk': (diskURI) => ({ azureDisk: { diskURI, diskName: 'n' } }),
  'azure-file': (shareName) => ({ azureFile: { shareName, secretName: 's' } }),
  'vsphere-volume': (volumePath) => ({ vsphereVolume: { volumePath } }),
  'portworx-volume': (volumeID) => ({ portworxVolume: { volumeID } }),
};

describe('two PVs', () => {
  for (const [form, of] of Object.entries(FORMS))
    it(`of the form ${form} stand for one volume if their ids are equal`, () => {
      assert.ok(isSameVolume(pv(of('1')), pv(of('1'))));
      assert.ok(!isSameVolume(pv(of('1')), pv(of('2'))));
    });

  it('stand for one volume whatever their labels', () =>
    assert.ok(isSameVolume(disk('us-a-b'), disk())));

  it('of Azure File differ by the namespace of the secret, by default the claim’s', () => {
    const share = (namespace: string, secretNamespace?: string) => {
      const source = { shareName: 'share', secretName: 's' };
      const azureFile = {
        ...source,
        ...(secretNamespace === undefined ? {} : { secretNamespace }),
      };
      return pv({ azureFile, claimRef: { namespace, name: 'claim', uid: 'uid' } });
    };
    assert.ok(isSameVolume(share('a'), share('b', 'a')));
    assert.ok(!isSameVolume(share('a'), share('b')));
  });

  it('are not the same if an in-tree source names no volume', () =>
    assert.ok(!isSameVolume(inTree(''), inTree(''))));

  it('are not the same in different forms, or without a source', () => {
    assert.ok(!isSameVolume(csi('vol-1'), inTree('vol-1')));
    assert.ok(!isSameVolume(csi('vol-1'), csi('vol-1', 'other')));
    assert.ok(!isSameVolume(none, none));
  });
});

describe('two PVs may stand for one volume', () => {
  const asCsi = pv({ csi: { driver: 'pd.csi.storage.gke.io', volumeHandle: 'disk' } });
  const cases: readonly (readonly [string, VolumeParts, VolumeParts, boolean])[] = [
    ['with one id in two forms', csi('vol-1'), inTree('vol-1'), true],
    ['not with two ids', csi('vol-1'), csi('vol-2'), false],
    ['not of two drivers', csi('vol-1'), csi('vol-1', 'other'), false],
    ['not without a source', none, none, false],
    ['not as GCE disks in different zones', disk('us-a-b'), disk('us-a-c'), false],
    ['as regional GCE disks with a zone in common', disk('a-b__a-c'), disk('a-c__a-d'), true],
    ['as GCE disks if the second has no zone', disk('us-a-b'), disk(), true],
    ['as GCE disks if the first has no zone', disk(), disk('us-a-b'), true],
    ['as GCE disks if the second has another form', disk('us-a-b'), asCsi, true],
    ['as GCE disks if the first has another form', asCsi, disk('us-a-b'), true],
  ];
  for (const [title, one, other, expected] of cases)
    it(title, () => assert.equal(mayBeSame(one, other), expected));
});

it('handleHash depends on driver and id, and not on the form of the PV', () => {
  const volume = { driver: 'd.example', id: 'h', form: 'csi' } as const;
  assert.equal(handleHash(volume), handleHash({ ...volume, form: 'gcePersistentDisk' }));
  assert.notEqual(handleHash(volume), handleHash({ ...volume, id: 'other' }));
  assert.notEqual(handleHash(volume), handleHash({ ...volume, driver: 'other.example' }));
});

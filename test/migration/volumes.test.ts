import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CsiSource, VolumeSpec } from '#src/kube/objects.ts';
import * as plugins from '#src/migration/plugins.ts';
import { aNewVolume, aStoredVolume, AZURE_DISK_URI as URI, refusal } from './builders.ts';

const { inTreeNameOf, isInTreeVolume, PLUGINS, toInTreeVolume, translateHandle } = plugins;
const OTHERS = { storageClassName: 'class', mountOptions: ['o'], unknown: { to: 'us' } };
const SECRET = 'azure-storage-account-acct-secret';

describe('the plug-ins', () => {
  const table: readonly (readonly [inTreeName: string, csiDriver: string, source: string])[] = [
    ['kubernetes.io/gce-pd', 'pd.csi.storage.gke.io', 'gcePersistentDisk'],
    ['kubernetes.io/aws-ebs', 'ebs.csi.aws.com', 'awsElasticBlockStore'],
    ['kubernetes.io/cinder', 'cinder.csi.openstack.org', 'cinder'],
    ['kubernetes.io/azure-disk', 'disk.csi.azure.com', 'azureDisk'],
    ['kubernetes.io/azure-file', 'file.csi.azure.com', 'azureFile'],
    ['kubernetes.io/vsphere-volume', 'csi.vsphere.vmware.com', 'vsphereVolume'],
    ['kubernetes.io/portworx-volume', 'pxd.portworx.com', 'portworxVolume'],
  ];
  it('are these seven, with these drivers and sources', () =>
    assert.deepEqual(
      PLUGINS.map(({ inTreeName, csiDriver, source }) => [inTreeName, csiDriver, source]),
      table,
    ));

  it('are found by the driver that replaced them', () => {
    assert.equal(inTreeNameOf('ebs.csi.aws.com'), 'kubernetes.io/aws-ebs');
    for (const name of ['sample.csi.sutler.dev', 'kubernetes.io/rbd', '__proto__'])
      assert.equal(inTreeNameOf(name), undefined, name);
  });
});

it('isInTreeVolume is false for a CSI volume and for one of another kind', () => {
  assert.equal(isInTreeVolume(aNewVolume('some.driver')), false);
  assert.equal(isInTreeVolume(aStoredVolume({ hostPath: { path: '/' } })), false);
});

describe('the handle of a stored volume', () => {
  const azureFile = { secretName: SECRET, shareName: 'share', secretNamespace: 'ns' };
  const handles: readonly (readonly [driver: string, VolumeSpec, handle: string])[] = [
    ['ebs.csi.aws.com', { awsElasticBlockStore: { volumeID: 'aws://a/vol-1' } }, 'vol-1'],
    ['cinder.csi.openstack.org', { cinder: { volumeID: 'id' } }, 'id'],
    ['disk.csi.azure.com', { azureDisk: { diskName: 'd', diskURI: URI, kind: 'managed' } }, URI],
    ['file.csi.azure.com', { azureFile }, 'group#acct#share#pv#ns'],
    ['csi.vsphere.vmware.com', { vsphereVolume: { volumePath: '[ds] a/b' } }, '[ds] a/b'],
    ['pxd.portworx.com', { portworxVolume: { volumeID: 'id' } }, 'id'],
    [
      'pd.csi.storage.gke.io',
      { gcePersistentDisk: { pdName: 'd' } },
      'projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d',
    ],
  ];
  const annotations = { 'kubernetes.io/azure-file-resource-group': 'group' };
  for (const [driver, spec, handle] of handles)
    it(`is for ${driver} ${handle}`, () => {
      const volume = aStoredVolume(spec, { annotations });
      assert.equal(isInTreeVolume(volume), true);
      assert.deepEqual(translateHandle(volume), { driver, handle });
    });
});

describe('toInTreeVolume keeps all else, and has for', () => {
  const given = { fsType: 'xfs', readOnly: true };
  const azure = { diskName: 'disk', diskURI: URI, kind: 'Managed', fsType: '', readOnly: false };
  const volumeAttributes = { shareName: 'sh', SecretName: 'se', secretnamespace: 'ns' };
  const GCE_HANDLE = 'projects/p/zones/us-east1-b/disks/disk';
  const vmdk = { initialvolumefilepath: 'path' };
  const rows: readonly (readonly [string, string, Partial<CsiSource>, VolumeSpec])[] = [
    [
      'GCE disk name, file system and readOnly',
      'gce-pd',
      { volumeHandle: GCE_HANDLE, volumeAttributes: { a: 'b' }, ...given },
      { gcePersistentDisk: { pdName: 'disk', ...given } },
    ],
    [
      'GCE a partition if the attributes name one',
      'gce-pd',
      { volumeHandle: GCE_HANDLE, volumeAttributes: { partition: '3' } },
      { gcePersistentDisk: { pdName: 'disk', partition: 3 } },
    ],
    [
      'GCE none if they name an empty one',
      'gce-pd',
      { volumeHandle: GCE_HANDLE, volumeAttributes: { partition: '' } },
      { gcePersistentDisk: { pdName: 'disk' } },
    ],
    [
      'GCE the sixth part of the handle as the name',
      'gce-pd',
      { volumeHandle: 'projects/p/regions/us-east1/disks/disk/more' },
      { gcePersistentDisk: { pdName: 'disk' } },
    ],
    [
      'GCE an empty sixth part as the name',
      'gce-pd',
      { volumeHandle: '/////' },
      { gcePersistentDisk: { pdName: '' } },
    ],
    [
      'AWS handle, file system and readOnly',
      'aws-ebs',
      { volumeHandle: 'vol-1', ...given },
      { awsElasticBlockStore: { volumeID: 'vol-1', ...given } },
    ],
    [
      'Cinder handle, file system and readOnly',
      'cinder',
      { volumeHandle: 'id', ...given },
      { cinder: { volumeID: 'id', ...given } },
    ],
    ['Azure Disk always all', 'azure-disk', { volumeHandle: URI }, { azureDisk: azure }],
    [
      'Azure Disk file system and readOnly',
      'azure-disk',
      { volumeHandle: URI, ...given },
      { azureDisk: { ...azure, ...given } },
    ],
    [
      'Azure Disk caching mode and file system of the attributes, in any case',
      'azure-disk',
      { volumeHandle: URI, ...given, volumeAttributes: { CachingMode: 'None', FsType: 'ext4' } },
      { azureDisk: { ...azure, cachingMode: 'None', fsType: 'ext4', readOnly: true } },
    ],
    [
      'Azure Disk nothing of empty attributes',
      'azure-disk',
      { volumeHandle: URI, ...given, volumeAttributes: { cachingmode: '', fstype: '' } },
      { azureDisk: { ...azure, ...given } },
    ],
    [
      'Azure File share and secret of the attributes, in any case',
      'azure-file',
      { readOnly: true, volumeAttributes },
      {
        azureFile: { shareName: 'sh', secretName: 'se', secretNamespace: 'ns', readOnly: true },
      },
    ],
    [
      'vSphere the path that the driver names, and its file system',
      'vsphere-volume',
      { ...given, volumeAttributes: vmdk },
      { vsphereVolume: { volumePath: 'path', fsType: 'xfs' } },
    ],
    [
      'vSphere an empty path if the driver names none',
      'vsphere-volume',
      {},
      { vsphereVolume: { volumePath: '' } },
    ],
    [
      'Portworx handle, file system and readOnly',
      'portworx-volume',
      { volumeHandle: 'id', ...given },
      { portworxVolume: { volumeID: 'id', ...given } },
    ],
  ];
  for (const [title, name, csi, expected] of rows)
    it(title, () => {
      const inTreeName = `kubernetes.io/${name}`;
      const metadata = { annotations: { 'pv.kubernetes.io/provisioned-by': inTreeName } };
      const volume = aNewVolume(inTreeName, csi, { spec: OTHERS, metadata });
      const spec = { ...OTHERS, capacity: { storage: '1Gi' }, ...expected };
      assert.deepEqual(toInTreeVolume(volume), { ...volume, spec });
    });
});

describe('the in-tree form is refused', () => {
  it('of a volume without a CSI source', () => {
    const { spec, ...volume } = aNewVolume('x');
    const { csi: _, ...rest } = spec;
    const text = 'CSI persistent volume was nil';
    assert.throws(() => toInTreeVolume({ ...volume, spec: rest }), refusal(text));
  });

  for (const driver of ['sample.csi.sutler.dev', '__proto__'])
    it(`of a volume of the driver "${driver}"`, () =>
      assert.throws(
        () => toInTreeVolume(aNewVolume(driver)),
        refusal(`could not find in-tree plugin translation logic for ${driver}`),
      ));
});

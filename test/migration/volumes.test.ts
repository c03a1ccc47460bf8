import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { VolumeSpec } from '#src/kube/objects.ts';
import {
  inTreeNameOf,
  isInTreeVolume,
  PLUGINS,
  toCsiVolume,
  toInTreeVolume,
} from '#src/migration/plugins.ts';
import type { SourceField } from '#src/migration/in-tree-plugin.ts';
import { aNewVolume, aStoredVolume, refusal } from './builders.ts';

const URI = '/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/disk';
/** A PV's spec for each in-tree source. */
const SOURCES: Readonly<Record<SourceField, VolumeSpec>> = {
  gcePersistentDisk: { gcePersistentDisk: { pdName: 'disk', fsType: 'ext4' } },
  awsElasticBlockStore: {
    awsElasticBlockStore: { volumeID: 'vol-1', fsType: 'ext4', readOnly: true, partition: 1 },
  },
  cinder: { cinder: { volumeID: 'id', readOnly: true } },
  azureDisk: {
    azureDisk: {
      diskName: 'disk',
      diskURI: URI,
      cachingMode: 'None',
      fsType: 'ext4',
      kind: 'Managed',
      readOnly: true,
    },
  },
  azureFile: {
    azureFile: { secretName: 'secret', shareName: 'share', secretNamespace: 'ns', readOnly: true },
  },
  vsphereVolume: { vsphereVolume: { volumePath: 'path', fsType: 'ext4' } },
  portworxVolume: { portworxVolume: { volumeID: 'id', fsType: 'ext4' } },
};
const HANDLES: Readonly<Partial<Record<SourceField, string>>> = {
  gcePersistentDisk: 'projects/p/zones/us-east1-b/disks/disk',
  azureDisk: URI,
  azureFile: 'group#account#share',
};
const OTHERS = { storageClassName: 'class', mountOptions: ['o'], unknown: { to: 'us' } };

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

describe('toCsiVolume', () => {
  for (const { source, csiDriver } of PLUGINS) {
    it(`replaces ${source} by a source of ${csiDriver}, and keeps all else`, () => {
      const volume = aStoredVolume({ ...SOURCES[source], ...OTHERS });
      assert.equal(isInTreeVolume(volume), true);
      const { spec, ...around } = toCsiVolume(volume);
      const { csi, capacity, ...rest } = spec;
      assert.equal(csi?.driver, csiDriver);
      assert.deepEqual([capacity, rest], [{ storage: '1Gi' }, OTHERS]);
      const { spec: _, ...expected } = volume;
      assert.deepEqual(around, expected);
    });
  }

  it('refuses a volume without an in-tree source', () => {
    const csi = { driver: 'ebs.csi.aws.com', volumeHandle: 'vol-1' };
    const text = 'could not find in-tree plugin translation logic for "pv"';
    assert.throws(() => toCsiVolume(aStoredVolume({ csi })), refusal(text));
  });
});

describe('toInTreeVolume', () => {
  for (const { source, inTreeName } of PLUGINS) {
    it(`replaces the CSI source by ${source}, and keeps all else`, () => {
      const annotations = { 'pv.kubernetes.io/provisioned-by': inTreeName };
      const csi = {
        volumeHandle: HANDLES[source] ?? 'handle',
        volumeAttributes: { sharename: 'share', secretname: 'secret' },
      };
      const volume = toInTreeVolume(
        aNewVolume(inTreeName, csi, { spec: OTHERS, metadata: { annotations } }),
      );
      const { [source]: made, capacity, ...rest } = volume.spec;
      assert.ok(made !== undefined);
      assert.deepEqual([capacity, rest], [{ storage: '1Gi' }, OTHERS]);
      assert.deepEqual(volume.metadata, { name: 'pv', finalizers: ['f'], annotations });
    });
  }

  it('refuses a volume without a CSI source', () => {
    const { spec, ...volume } = aNewVolume('x');
    const { csi: _, ...rest } = spec;
    const text = 'CSI persistent volume was nil';
    assert.throws(() => toInTreeVolume({ ...volume, spec: rest }), refusal(text));
  });

  for (const driver of ['sample.csi.sutler.dev', '__proto__'])
    it(`refuses the driver "${driver}"`, () => {
      const text = `could not find in-tree plugin translation logic for ${driver}`;
      assert.throws(() => toInTreeVolume(aNewVolume(driver)), refusal(text));
    });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { inTreeNameOf, PLUGINS } from '#src/migration/plugins.ts';

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

  it('are these seven, with these drivers and sources', () => {
    assert.deepEqual(
      PLUGINS.map(({ inTreeName, csiDriver, source }) => [inTreeName, csiDriver, source]),
      table,
    );
  });

  for (const [inTreeName, csiDriver] of table) {
    it(`include ${inTreeName}, which ${csiDriver} replaced`, () => {
      assert.equal(inTreeNameOf(csiDriver), inTreeName);
    });
  }

  it('include none for other drivers', () => {
    for (const name of [
      'sample.csi.sutler.dev',
      'kubernetes.io/rbd',
      '',
      '__proto__',
      'toString',
    ]) {
      assert.equal(inTreeNameOf(name), undefined, name);
    }
  });
});

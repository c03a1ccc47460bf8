import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { inTreeNameOf, PLUGINS } from '#src/volumes/migration/plugins.ts';

describe('the plug-ins', () => {
  const table: readonly (readonly string[])[] = [
    ['kubernetes.io/gce-pd', 'pd.csi.storage.gke.io', 'gcePersistentDisk', 'topology.gke.io/zone'],
    [
      'kubernetes.io/aws-ebs',
      'ebs.csi.aws.com',
      'awsElasticBlockStore',
      'topology.ebs.csi.aws.com/zone',
    ],
    [
      'kubernetes.io/cinder',
      'cinder.csi.openstack.org',
      'cinder',
      'topology.cinder.csi.openstack.org/zone',
    ],
    [
      'kubernetes.io/azure-disk',
      'disk.csi.azure.com',
      'azureDisk',
      'topology.disk.csi.azure.com/zone',
    ],
    ['kubernetes.io/azure-file', 'file.csi.azure.com', 'azureFile'],
    [
      'kubernetes.io/vsphere-volume',
      'csi.vsphere.vmware.com',
      'vsphereVolume',
      'topology.csi.vmware.com/zone',
      'topology.csi.vmware.com/region',
    ],
    ['kubernetes.io/portworx-volume', 'pxd.portworx.com', 'portworxVolume'],
  ];

  it('are these seven, with these drivers, sources and topology keys', () => {
    assert.deepEqual(
      PLUGINS.map(({ inTreeName, csiDriver, source, zoneKey, regionKey }) =>
        [inTreeName, csiDriver, source, zoneKey, regionKey].filter((name) => name !== undefined),
      ),
      table,
    );
  });

  for (const [inTreeName = '', csiDriver = ''] of table) {
    it(`${inTreeName} and ${csiDriver} name one another`, () => {
      assert.equal(inTreeNameOf(csiDriver), inTreeName);
    });
  }

  it('know nothing of other names', () => {
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

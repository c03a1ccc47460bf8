import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { auditId } from '#src/audit/orphans.ts';
import { identityOf } from '#src/volumes/handles.ts';
import type { VolumeSpec } from '#src/kube/objects.ts';
import { RefusedError } from '#src/rules/rule.ts';

describe('auditId', () => {
  const idOf = (spec: VolumeSpec): string => {
    const found = identityOf({ metadata: { name: 'pv' }, spec });
    assert.ok(found);
    return auditId(found);
  };
  const listed = (driver: string, id: string): string => auditId({ driver, form: 'csi', id });

  it('is the handle of a CSI volume', () =>
    assert.equal(idOf({ csi: { driver: 'd', volumeHandle: 'h' } }), 'h'));

  for (const { driver, handle, spec } of [
    {
      driver: 'pd.csi.storage.gke.io',
      handle: 'projects/p/zones/z/disks/disk',
      spec: { gcePersistentDisk: { pdName: 'disk' } },
    },
    {
      driver: 'ebs.csi.aws.com',
      handle: 'vol-1',
      spec: { awsElasticBlockStore: { volumeID: 'aws://us-east-1a/vol-1' } },
    },
    {
      driver: 'file.csi.azure.com',
      handle: 'group#account#share#pv#ns',
      spec: {
        azureFile: { shareName: 'share', secretName: 'azure-storage-account-account-secret' },
      },
    },
  ] satisfies { driver: string; handle: string; spec: VolumeSpec }[]) {
    it(`is the same for a volume that ${driver} lists and its in-tree PV`, () =>
      assert.equal(idOf(spec), listed(driver, handle)));
  }

  it('refuses in-tree vSphere volumes, since every one would look like an orphan', () => {
    assert.throws(() => idOf({ vsphereVolume: { volumePath: '[store] x.vmdk' } }), RefusedError);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Class } from '#src/kube/objects.ts';
import { shouldProvision } from '#src/volumes/eligibility.ts';
import { AZURE_DISK } from '#src/migration/azure-disk.ts';
import { aClaim, aClass, driver } from './builders.ts';
import {
  readDriverAnswer,
  readBadAnswer,
  planCreation,
  planRefusal,
  withCapability,
} from './plans.ts';
import {
  aContent,
  aSnapshot,
  aSourceClaim,
  aSourceVolume,
  cloneObjects,
  snapshotObjects,
  SNAPSHOT_GROUP,
} from './source-builders.ts';

/* Upstream's table uses a mock translator. This one uses the real translator of Azure Disk, which
 * keeps `fstype` and removes `zone`: a missing `zone` shows that the class was translated. */
const DRIVER = AZURE_DISK.csiDriver;
const IN_TREE = AZURE_DISK.inTreeName;
const GA = 'volume.kubernetes.io/storage-provisioner';
const BETA = 'volume.beta.kubernetes.io/storage-provisioner';
const MIGRATED_TO = 'pv.kubernetes.io/migrated-to';
const PROVISIONED_BY = 'pv.kubernetes.io/provisioned-by';
const DISK = '/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/disk1';

const successor = { ...driver, name: DRIVER, inTreeName: IN_TREE };
const classOf = (provisioner: string): Class =>
  aClass({ provisioner, parameters: { fstype: 'ext3', zone: 'west-1' } });

/** The request and the PV of a claim that is this driver's. */
async function provisioned(annotations: Record<string, string>, provisioner: string) {
  const claim = aClaim({ metadata: { annotations } });
  const cls = classOf(provisioner);
  assert.equal(shouldProvision(claim, successor, () => cls).kind, 'provision');
  const { request, plan } = await planCreation({ claim, cls, driver: successor });
  const answer = readDriverAnswer(plan, { volumeId: DISK });
  assert.ok(!('message' in answer));
  const { metadata, spec } = answer.volume;
  return {
    parameters: request.parameters,
    by: metadata.annotations?.[PROVISIONED_BY],
    handles: [spec.azureDisk?.diskURI, spec.csi?.volumeHandle],
  };
}

describe('a claim of an in-tree class is translated both ways', () => {
  const translated = { parameters: { fstype: 'ext3' }, by: IN_TREE, handles: [DISK, undefined] };
  for (const [title, annotations] of [
    ['if the beta annotation names the driver (G-01)', { [BETA]: DRIVER }],
    ['if the GA annotation names the driver (G-02)', { [GA]: DRIVER }],
    ['if it was migrated to the driver (G-05)', { [GA]: IN_TREE, [MIGRATED_TO]: DRIVER }],
    ['if both are so (G-08)', { [GA]: DRIVER, [MIGRATED_TO]: DRIVER }],
  ] as const)
    it(title, async () => assert.deepEqual(await provisioned(annotations, IN_TREE), translated));
});

describe('a claim of the driver’s own class is not translated', () => {
  const parameters = { fstype: 'ext3', zone: 'west-1' };
  const native = { parameters, by: DRIVER, handles: [undefined, DISK] };
  for (const [title, annotations] of [
    ['if the beta annotation names the driver (G-03)', { [BETA]: DRIVER }],
    ['if the GA annotation names the driver (G-04)', { [GA]: DRIVER }],
  ] as const)
    it(title, async () => assert.deepEqual(await provisioned(annotations, DRIVER), native));
});

describe('a volume of an in-tree class', () => {
  const resources = { requests: { storage: '1000' } };
  const cls = classOf(IN_TREE);
  const able = (capability: string) => ({
    ...successor,
    controllerCapabilities: withCapability(capability).controllerCapabilities,
  });

  it('without an in-tree form is refused before its PV is written', async () => {
    const claim = aClaim({ metadata: { annotations: { [GA]: DRIVER } } });
    const { plan } = await planCreation({ claim, cls, driver: successor });
    const answer = readBadAnswer(plan, { volumeId: 'no-disk-uri' });
    assert.match(answer.message, /^could not get disk name from no-disk-uri/);
    assert.deepEqual([answer.handle, answer.isPermanent], ['no-disk-uri', true]);
  });

  it('can’t be restored from a snapshot of the driver (R-41)', async () => {
    const dataSource = { apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot', name: 'test-snapshot' };
    const claim = aClaim({ metadata: { namespace: 'ns1' }, spec: { resources, dataSource } });
    const objects = snapshotObjects(aSnapshot(), aContent({ spec: { driver: DRIVER } }));
    const given = { claim, cls, driver: able('CREATE_DELETE_SNAPSHOT'), objects };
    assert.match(
      (await planRefusal(given)).message,
      /snapshot test-snapshot is not handled by CSI driver of StorageClass class$/,
    );
  });

  it('can’t be cloned from a volume of the driver (R-41)', async () => {
    const namespace = 'fake-pvc-namespace';
    const dataSource = { kind: 'PersistentVolumeClaim', name: 'fake-pvc' };
    const claim = aClaim({ metadata: { namespace }, spec: { resources, dataSource } });
    const csi = { driver: DRIVER, volumeHandle: DISK };
    const objects = cloneObjects(aSourceClaim(), aSourceVolume({ spec: { csi } }));
    const given = { claim, cls, driver: able('CLONE_VOLUME'), objects };
    assert.match((await planRefusal(given)).message, /: claim in dataSource not bound or invalid$/);
  });
});

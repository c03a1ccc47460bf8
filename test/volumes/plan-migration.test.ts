import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Class } from '#src/kube/objects.ts';
import { shouldProvision } from '#src/volumes/eligibility.ts';
import { AZURE_DISK } from '#src/migration/azure-disk.ts';
import { aClaim, aClass, driver } from './builders.ts';
import { planCreation, readDriverAnswer } from './plans.ts';

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

describe('the class and the volume of a claim', () => {
  const translated = { parameters: { fstype: 'ext3' }, by: IN_TREE, handles: [DISK, undefined] };
  const parameters = { fstype: 'ext3', zone: 'west-1' };
  const native = { parameters, by: DRIVER, handles: [undefined, DISK] };
  for (const [title, annotations, provisioner] of [
    ['are translated if the beta annotation names the driver (G-01)', { [BETA]: DRIVER }, IN_TREE],
    ['are translated if the GA annotation names the driver (G-02)', { [GA]: DRIVER }, IN_TREE],
    [
      'are translated if it was migrated to the driver (G-05)',
      { [GA]: IN_TREE, [MIGRATED_TO]: DRIVER },
      IN_TREE,
    ],
    ['are translated if both are so (G-08)', { [GA]: DRIVER, [MIGRATED_TO]: DRIVER }, IN_TREE],
    [
      'stay if the class is the driver’s, by the beta annotation (G-03)',
      { [BETA]: DRIVER },
      DRIVER,
    ],
    ['stay if the class is the driver’s, by the GA annotation (G-04)', { [GA]: DRIVER }, DRIVER],
  ] as const)
    it(title, async () => {
      const expected = provisioner === IN_TREE ? translated : native;
      assert.deepEqual(await provisioned(annotations, provisioner), expected);
    });
});

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
const DISK = '/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/disk1';

const successor = { ...driver, name: DRIVER, inTreeName: IN_TREE };
const classOf = (provisioner: string): Class =>
  aClass({ provisioner, parameters: { fstype: 'ext3', zone: 'west-1' } });
const claimOf = (annotations: Record<string, string>) => {
  const { accessModes: _, ...spec } = aClaim().spec;
  return {
    ...aClaim({ metadata: { annotations } }),
    spec: { ...spec, resources: { requests: { storage: '100000' } } },
  };
};

/** The request and the PV of a claim that is this driver's. */
async function provisioned(annotations: Record<string, string>, provisioner: string) {
  const claim = claimOf(annotations);
  const cls = classOf(provisioner);
  assert.equal(shouldProvision(claim, successor, () => cls).kind, 'provision');
  const { request, plan } = await planCreation({ claim, cls, driver: successor });
  const answer = readDriverAnswer(plan, { volumeId: DISK, capacityBytes: 100_000n });
  assert.ok(!('message' in answer));
  return { request, volume: answer.volume };
}

type Provisioned = Awaited<ReturnType<typeof provisioned>>;

function assertTranslated({ request, volume }: Provisioned): void {
  assert.equal(request.name, 'test-testi');
  assert.deepEqual(request.parameters, { fstype: 'ext3' });
  assert.deepEqual(request.volumeCapabilities, []);
  assert.equal(request.capacityRange?.requiredBytes, 100_000n);
  assert.equal(volume.spec.csi, undefined);
  assert.equal(volume.spec.azureDisk?.diskURI, DISK);
  assert.equal(volume.metadata.annotations?.['pv.kubernetes.io/provisioned-by'], IN_TREE);
}

function assertNative({ request, volume }: Provisioned): void {
  assert.deepEqual(request.parameters, { fstype: 'ext3', zone: 'west-1' });
  assert.equal(volume.spec.azureDisk, undefined);
  assert.equal(volume.spec.csi?.volumeHandle, DISK);
  assert.equal(volume.metadata.annotations?.['pv.kubernetes.io/provisioned-by'], DRIVER);
}

describe('a claim of an in-tree class', () => {
  it('is translated both ways if the beta annotation names the driver (G-01)', async () => {
    assertTranslated(await provisioned({ [BETA]: DRIVER }, IN_TREE));
  });

  it('is translated both ways if the GA annotation names the driver (G-02)', async () => {
    assertTranslated(await provisioned({ [GA]: DRIVER }, IN_TREE));
  });

  it('is translated both ways if it was migrated to the driver (G-05)', async () => {
    assertTranslated(await provisioned({ [GA]: IN_TREE, [MIGRATED_TO]: DRIVER }, IN_TREE));
  });

  it('is translated both ways if it names the driver and was migrated (G-08)', async () => {
    assertTranslated(await provisioned({ [GA]: DRIVER, [MIGRATED_TO]: DRIVER }, IN_TREE));
  });
});

describe('a claim of the driver’s own class', () => {
  it('is not translated if the beta annotation names the driver (G-03)', async () =>
    assertNative(await provisioned({ [BETA]: DRIVER }, DRIVER)));

  it('is not translated if the GA annotation names the driver (G-04)', async () =>
    assertNative(await provisioned({ [GA]: DRIVER }, DRIVER)));

  it('is not translated for a driver that replaced no plug-in', async () => {
    const { plan } = await planCreation({ cls: aClass({ parameters: { zone: 'west-1' } }) });
    assert.equal(plan.isMigrated, false);
  });
});

describe('a volume of an in-tree class', () => {
  const resources = { requests: { storage: '1000' } };
  const snapshot = { apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot', name: 'test-snapshot' };

  it('without an in-tree form is refused before its PV is written', async () => {
    const { plan } = await planCreation({
      claim: claimOf({ [GA]: DRIVER }),
      cls: classOf(IN_TREE),
      driver: successor,
    });
    const answer = readBadAnswer(plan, { volumeId: 'no-disk-uri', capacityBytes: 100_000n });
    assert.match(answer.message, /^could not get disk name from no-disk-uri/);
    assert.deepEqual([answer.handle, answer.isPermanent], ['no-disk-uri', true]);
  });

  it('can’t be restored from a snapshot of the driver (R-41)', async () => {
    const claim = aClaim({
      metadata: { namespace: 'ns1' },
      spec: { resources, dataSource: snapshot },
    });
    const objects = snapshotObjects(aSnapshot(), aContent({ spec: { driver: DRIVER } }));
    const facts = {
      ...successor,
      controllerCapabilities: withCapability('CREATE_DELETE_SNAPSHOT').controllerCapabilities,
    };
    assert.match(
      (await planRefusal({ claim, cls: classOf(IN_TREE), driver: facts, objects })).message,
      new RegExp(
        'snapshotcontent snapcontent-snapuid for snapshot test-snapshot is not ' +
          'handled by CSI driver of StorageClass class$',
      ),
    );
  });

  it('can’t be cloned from a volume of the driver (R-41)', async () => {
    const dataSource = { kind: 'PersistentVolumeClaim', name: 'fake-pvc' };
    const claim = aClaim({
      metadata: { namespace: 'fake-pvc-namespace' },
      spec: { resources, dataSource },
    });
    const objects = cloneObjects(
      aSourceClaim(),
      aSourceVolume({ spec: { csi: { driver: DRIVER, volumeHandle: DISK } } }),
    );
    const facts = {
      ...successor,
      controllerCapabilities: withCapability('CLONE_VOLUME').controllerCapabilities,
    };
    assert.match(
      (await planRefusal({ claim, cls: classOf(IN_TREE), driver: facts, objects })).message,
      /: claim in dataSource not bound or invalid$/,
    );
  });
});

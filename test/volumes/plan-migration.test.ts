import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Class } from '#src/kube/objects.ts';
import { judgeClaim } from '#src/volumes/eligibility.ts';
import { AZURE_DISK } from '#src/volumes/migration/azure-disk.ts';
import { completeVolume } from '#src/volumes/persistent-volume.ts';
import { aClaim, aClass, driver } from './builders.ts';
import { answered, blamed, created, refused, withCapability } from './plans.ts';
import {
  aContent,
  aSnapshot,
  aSourceClaim,
  aSourceVolume,
  cloneWorld,
  snapshotWorld,
  SNAPSHOT_GROUP,
} from './source-builders.ts';

/* Upstream's table runs on a translator that is made up; ours on the real one of Azure Disk, which
 * leaves `fstype` as it is and takes `zone` away: that it is gone is the sign of translation. */
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

/** The request and the PV of a claim that is ours. */
function provisioned(annotations: Record<string, string>, provisioner: string) {
  const claim = claimOf(annotations);
  const cls = classOf(provisioner);
  assert.equal(judgeClaim(claim, successor, () => cls).kind, 'provision');
  const { request, skeleton } = created({ claim, cls, driver: successor });
  const answer = answered(skeleton, { volumeId: DISK, capacityBytes: 100_000n });
  assert.ok(!('message' in answer), JSON.stringify(answer));
  return { request, volume: completeVolume(skeleton, answer) };
}

function assertTranslated({ request, volume }: ReturnType<typeof provisioned>): void {
  assert.equal(request.name, 'test-testi');
  assert.deepEqual(request.parameters, { fstype: 'ext3' });
  assert.deepEqual(request.volumeCapabilities, []);
  assert.equal(request.capacityRange?.requiredBytes, 100_000n);
  assert.equal(volume.spec.csi, undefined);
  assert.equal(volume.spec.azureDisk?.diskURI, DISK);
  assert.equal(volume.metadata.annotations?.['pv.kubernetes.io/provisioned-by'], IN_TREE);
}

function assertNative({ request, volume }: ReturnType<typeof provisioned>): void {
  assert.deepEqual(request.parameters, { fstype: 'ext3', zone: 'west-1' });
  assert.equal(volume.spec.azureDisk, undefined);
  assert.equal(volume.spec.csi?.volumeHandle, DISK);
  assert.equal(volume.metadata.annotations?.['pv.kubernetes.io/provisioned-by'], DRIVER);
}

describe('a claim of an in-tree class', () => {
  it('is translated both ways where the beta annotation names the driver (G-01)', () => {
    assertTranslated(provisioned({ [BETA]: DRIVER }, IN_TREE));
  });

  it('is translated both ways where the annotation of today names the driver (G-02)', () => {
    assertTranslated(provisioned({ [GA]: DRIVER }, IN_TREE));
  });

  it('is translated both ways where it was migrated to the driver (G-05)', () => {
    assertTranslated(provisioned({ [GA]: IN_TREE, [MIGRATED_TO]: DRIVER }, IN_TREE));
  });

  it('is translated both ways where it names the driver and was migrated to it (G-08)', () => {
    assertTranslated(provisioned({ [GA]: DRIVER, [MIGRATED_TO]: DRIVER }, IN_TREE));
  });
});

describe('a claim of the driver’s own class', () => {
  it('is not translated where the beta annotation names the driver (G-03)', () =>
    assertNative(provisioned({ [BETA]: DRIVER }, DRIVER)));

  it('is not translated where the annotation of today names the driver (G-04)', () =>
    assertNative(provisioned({ [GA]: DRIVER }, DRIVER)));

  it('is not translated for a driver that took over from nothing', () => {
    const { skeleton } = created({ cls: aClass({ parameters: { zone: 'west-1' } }) });
    assert.equal(skeleton.isMigrated, undefined);
  });
});

describe('a volume of an in-tree class', () => {
  const resources = { requests: { storage: '1000' } };
  const snapshot = { apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot', name: 'test-snapshot' };

  it('that has no in-tree form is known as such before its PV is written', () => {
    const { skeleton } = created({
      claim: claimOf({ [GA]: DRIVER }),
      cls: classOf(IN_TREE),
      driver: successor,
    });
    const answer = blamed(skeleton, { volumeId: 'no-disk-uri', capacityBytes: 100_000n });
    assert.match(answer.message, /^could not get disk name from no-disk-uri/);
    assert.deepEqual([answer.handle, answer.isPermanent], ['no-disk-uri', true]);
  });

  it('can’t be restored from a snapshot of the driver (R-41)', () => {
    const claim = aClaim({
      metadata: { namespace: 'ns1' },
      spec: { resources, dataSource: snapshot },
    });
    const world = snapshotWorld(aSnapshot(), aContent({ spec: { driver: DRIVER } }));
    const facts = {
      ...successor,
      controllerCapabilities: withCapability('CREATE_DELETE_SNAPSHOT').controllerCapabilities,
    };
    assert.match(
      refused({ claim, cls: classOf(IN_TREE), driver: facts, world }).message,
      /snapshotcontent snapcontent-snapuid for snapshot test-snapshot is not handled by CSI driver of StorageClass class$/,
    );
  });

  it('can’t be cloned from a volume of the driver (R-41)', () => {
    const dataSource = { kind: 'PersistentVolumeClaim', name: 'fake-pvc' };
    const claim = aClaim({
      metadata: { namespace: 'fake-pvc-namespace' },
      spec: { resources, dataSource },
    });
    const world = cloneWorld(
      aSourceClaim(),
      aSourceVolume({ spec: { csi: { driver: DRIVER, volumeHandle: DISK } } }),
    );
    const facts = {
      ...successor,
      controllerCapabilities: withCapability('CLONE_VOLUME').controllerCapabilities,
    };
    assert.match(
      refused({ claim, cls: classOf(IN_TREE), driver: facts, world }).message,
      /: claim in dataSource not bound or invalid$/,
    );
  });
});

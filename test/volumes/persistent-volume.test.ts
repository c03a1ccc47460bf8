import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { CreateVolumeResponseSchema } from '#src/csi/generated/csi_pb.ts';
import type { Claim } from '#src/kube/objects.ts';
import { type PlannedRequest, readAnswer, volumeName } from '#src/volumes/persistent-volume.ts';
import { aClaim, aClass } from './builders.ts';
import {
  completePv,
  planCreation,
  readBadAnswer,
  readDriverAnswer,
  withCapability,
} from './plans.ts';
import { cloneObjects, SNAPSHOT_GROUP, snapshotObjects } from './source-builders.ts';

const IDENTITY = 'storage.kubernetes.io/csiProvisionerIdentity';

describe('the name of a volume', () => {
  const UID = '0123abcd-4567-89ef-0123-456789abcdef';
  const named = (volumeNameUuidLength: number, uid = UID, volumeNamePrefix = 'pvc') =>
    volumeName(uid, { volumeNamePrefix, volumeNameUuidLength });

  it('is prefix and whole UID with length -1', () => assert.equal(named(-1), `pvc-${UID}`));
  it('has the UID’s first digits, without dashes, with another length', () =>
    assert.equal(named(12), 'pvc-0123abcd4567'));
  it('has the whole UID if that is shorter', () => assert.equal(named(32, 'testid'), 'pvc-testid'));
  it('begins with the configured prefix', () =>
    assert.equal(named(5, 'testid', 'test'), 'test-testi'));
});

describe('the new PV', () => {
  it('has every field that upstream writes for a plain claim, and no other', async () => {
    assert.deepEqual(await completePv(), {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: {
        name: 'test-testi',
        annotations: {
          'pv.kubernetes.io/provisioned-by': 'test-driver',
          'volume.kubernetes.io/provisioner-deletion-secret-name': '',
          'volume.kubernetes.io/provisioner-deletion-secret-namespace': '',
        },
        finalizers: ['external-provisioner.volume.kubernetes.io/finalizer'],
      },
      spec: {
        accessModes: ['ReadWriteOnce'],
        capacity: { storage: '100' },
        claimRef: {
          kind: 'PersistentVolumeClaim',
          apiVersion: 'v1',
          namespace: 'space',
          name: 'claim',
          uid: 'testid',
          resourceVersion: '7',
        },
        csi: {
          driver: 'test-driver',
          volumeHandle: 'test-volume-id',
          fsType: 'ext4',
          volumeAttributes: { [IDENTITY]: 'test-provisioner' },
        },
        persistentVolumeReclaimPolicy: 'Delete',
        storageClassName: 'class',
      },
    });
  });

  const sizeOf = async (capacityBytes: bigint) =>
    (await completePv({}, { capacityBytes })).spec.capacity?.storage;
  it('has the requested size if the driver answers 0 (B-26)', async () =>
    assert.equal(await sizeOf(0n), '100'));
  it('has the driver’s larger size, as Kubernetes prints it', async () =>
    assert.equal(await sizeOf(1_610_612_736n), '1536Mi'));

  it('has the class’s reclaim policy, or none if the class has none (P-16)', async () => {
    const retained = await completePv({ cls: aClass({ reclaimPolicy: 'Retain' }) });
    assert.equal(retained.spec.persistentVolumeReclaimPolicy, 'Retain');
    const { reclaimPolicy: _, ...cls } = aClass();
    assert.equal((await completePv({ cls })).spec.persistentVolumeReclaimPolicy, undefined);
  });

  it('has no access modes if the claim has none', async () => {
    const { accessModes: _, ...spec } = aClaim().spec;
    assert.equal('accessModes' in (await completePv({ claim: { ...aClaim(), spec } })).spec, false);
  });

  it('has the driver’s context as attributes, which may overwrite the identity', async () => {
    const attributesOf = async (volumeContext: Record<string, string>) =>
      (await completePv({}, { volumeContext })).spec.csi?.volumeAttributes;
    assert.deepEqual(await attributesOf({ a: 'b' }), { [IDENTITY]: 'test-provisioner', a: 'b' });
    assert.deepEqual(await attributesOf({ [IDENTITY]: 'own' }), { [IDENTITY]: 'own' });
  });

  it('has the driver’s handle unchanged', async () => {
    const volumeId = ' Some/Handle ';
    assert.equal((await completePv({}, { volumeId })).spec.csi?.volumeHandle, volumeId);
  });

  it('refers to a claim without namespace without one', async () => {
    const { namespace: _, ...metadata } = aClaim().metadata;
    const { claimRef = {} } = (await completePv({ claim: { ...aClaim(), metadata } })).spec;
    assert.equal('namespace' in claimRef, false);
  });
});

describe('an answer', () => {
  let plan: PlannedRequest;
  before(async () => ({ plan } = await planCreation()));
  const blamed = (what: string) => ({
    message: `the driver answered CreateVolume ${what}; report this to the driver’s vendor`,
    handle: undefined,
  });

  it('without a volume is blamed on the driver (R-42)', () =>
    assert.deepEqual(
      readAnswer(create(CreateVolumeResponseSchema, {}), plan),
      blamed('without a volume'),
    ));
  it('with an empty handle is blamed on the driver', () =>
    assert.deepEqual(readBadAnswer(plan, { volumeId: '' }), blamed('with an empty volume_id')));

  it('with a handle above 4 KiB is blamed on the driver, and nothing is deleted by it', () => {
    assert.ok(!('message' in readDriverAnswer(plan, { volumeId: 'ä'.repeat(2_048) })));
    const expected = blamed('with a volume_id of 4098 bytes, more than 4096');
    assert.deepEqual(readBadAnswer(plan, { volumeId: 'ä'.repeat(2_049) }), expected);
  });

  it('with too few bytes is refused, with the handle to delete (B-22, B-46)', () =>
    assert.deepEqual(readBadAnswer(plan, { capacityBytes: 99n }), {
      message: 'created volume capacity 99 less than requested capacity 100',
      handle: 'test-volume-id',
    }));

  it('with negative bytes is refused even if no size was requested', async () => {
    const { plan: free } = await planCreation({ claim: aClaim({ spec: { resources: {} } }) });
    assert.equal(
      readBadAnswer(free, { capacityBytes: -1n }).message,
      'created volume capacity -1 less than requested capacity 0',
    );
  });

  it('keeps sizes that a Number can’t represent', async () => {
    const claim = aClaim({ spec: { resources: { requests: { storage: '9007199254740993' } } } });
    const whole = await completePv({ claim }, { capacityBytes: 9007199254740993n });
    assert.equal(whole.spec.capacity?.storage, '9007199254740993');
    const { plan: huge } = await planCreation({ claim });
    const { message } = readBadAnswer(huge, { capacityBytes: 9007199254740992n });
    assert.match(message, /^created volume capacity/);
  });
});

describe('the answer for a volume with a source', () => {
  const snapshot = { apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot', name: 'test-snapshot' };
  const resources = { requests: { storage: '1000' } };
  const claimIn = (namespace: string, spec: Partial<Claim['spec']>): Claim =>
    aClaim({ metadata: { namespace }, spec: { resources, ...spec } });
  const restored = async (spec: Partial<Claim['spec']>) =>
    (
      await planCreation({
        claim: claimIn('ns1', spec),
        driver: withCapability('CREATE_DELETE_SNAPSHOT'),
        objects: snapshotObjects(),
      })
    ).plan;
  const capacityBytes = 1000n;

  it('must name a content source', async () => {
    const plan = await restored({ dataSource: snapshot });
    assert.deepEqual(readBadAnswer(plan, { capacityBytes }), {
      message: 'volume content source missing',
      handle: 'test-volume-id',
      cleanupSpelling: 'cleanup',
    });
    const contentSource = { type: { case: 'snapshot' as const, value: { snapshotId: 'sid' } } };
    assert.ok(!('message' in readDriverAnswer(plan, { capacityBytes, contentSource })));
  });

  it('is refused for its size before it is refused for a missing source', async () => {
    const plan = await restored({ dataSource: snapshot });
    const { message } = readBadAnswer(plan, { capacityBytes: 999n });
    assert.match(message, /^created volume capacity/);
  });

  it('need not name a source of dataSourceRef in the own namespace (R-12)', async () => {
    const plan = await restored({ dataSourceRef: snapshot });
    assert.ok(!('message' in readDriverAnswer(plan, { capacityBytes })));
  });

  it('belongs to a plan that names the source’s UID', async () => {
    const dataSource = { kind: 'PersistentVolumeClaim', name: 'fake-pvc' };
    const { plan } = await planCreation({
      claim: claimIn('fake-pvc-namespace', { dataSource }),
      driver: withCapability('CLONE_VOLUME'),
      objects: cloneObjects(),
    });
    assert.equal(plan.source?.uid, 'fake-claim-uid');
    assert.equal((await restored({ dataSource: snapshot })).source?.uid, 'snapuid');
  });
});

import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { CreateVolumeResponseSchema } from '#src/csi/generated/csi_pb.ts';
import type { Claim } from '#src/kube/objects.ts';
import { type PlannedRequest, readAnswer } from '#src/volumes/persistent-volume.ts';
import { aClaim, aClass } from './builders.ts';
import {
  readDriverAnswer,
  readBadAnswer,
  planCreation,
  completePv,
  withCapability,
} from './plans.ts';
import { cloneObjects, SNAPSHOT_GROUP, snapshotObjects } from './source-builders.ts';

const IDENTITY = 'storage.kubernetes.io/csiProvisionerIdentity';

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

  it('has the requested size if the driver answers 0 (B-26)', async () => {
    assert.equal((await completePv({}, { capacityBytes: 0n })).spec.capacity?.storage, '100');
  });

  it('has the driver’s larger size, as Kubernetes prints it', async () => {
    assert.equal(
      (await completePv({}, { capacityBytes: 1_610_612_736n })).spec.capacity?.storage,
      '1536Mi',
    );
  });

  it('has the class’s reclaim policy, or none if the class has none (P-16)', async () => {
    assert.equal(
      (await completePv({ cls: aClass({ reclaimPolicy: 'Retain' }) })).spec
        .persistentVolumeReclaimPolicy,
      'Retain',
    );
    const { reclaimPolicy: _, ...bare } = aClass();
    assert.equal((await completePv({ cls: bare })).spec.persistentVolumeReclaimPolicy, undefined);
  });

  it('has no access modes if the claim has none', async () => {
    const { accessModes: _, ...spec } = aClaim().spec;
    assert.equal('accessModes' in (await completePv({ claim: { ...aClaim(), spec } })).spec, false);
  });

  it('has the driver’s context as attributes, which may overwrite the identity', async () => {
    assert.deepEqual(
      (await completePv({}, { volumeContext: { a: 'b' } })).spec.csi?.volumeAttributes,
      {
        [IDENTITY]: 'test-provisioner',
        a: 'b',
      },
    );
    assert.deepEqual(
      (await completePv({}, { volumeContext: { [IDENTITY]: 'own' } })).spec.csi?.volumeAttributes,
      { [IDENTITY]: 'own' },
    );
  });

  it('has the driver’s handle unchanged', async () => {
    assert.equal(
      (await completePv({}, { volumeId: ' Some/Handle ' })).spec.csi?.volumeHandle,
      ' Some/Handle ',
    );
  });

  it('refers to a claim without namespace without one', async () => {
    const { namespace: _, ...metadata } = aClaim().metadata;
    assert.equal(
      'namespace' in ((await completePv({ claim: { ...aClaim(), metadata } })).spec.claimRef ?? {}),
      false,
    );
  });
});

describe('an answer', () => {
  let plan: PlannedRequest;
  before(async () => ({ plan } = await planCreation()));

  it('without a volume is blamed on the driver (R-42)', () => {
    assert.deepEqual(readAnswer(create(CreateVolumeResponseSchema, {}), plan), {
      message:
        'the driver answered CreateVolume without a volume; report this to the driver’s vendor',
      handle: undefined,
    });
  });

  it('with an empty handle is blamed on the driver', () => {
    assert.deepEqual(readBadAnswer(plan, { volumeId: '' }), {
      message:
        'the driver answered CreateVolume with an empty volume_id; report this to the ' +
        'driver’s vendor',
      handle: undefined,
    });
  });

  it('with a handle above 4 KiB is blamed on the driver, and nothing is deleted by it', () => {
    assert.ok(!('message' in readDriverAnswer(plan, { volumeId: 'ä'.repeat(2_048) })));
    assert.deepEqual(readBadAnswer(plan, { volumeId: 'ä'.repeat(2_049) }), {
      message:
        'the driver answered CreateVolume with a volume_id of 4098 bytes, more than 4096; ' +
        'report this to the driver’s vendor',
      handle: undefined,
    });
  });

  it('with too few bytes is refused, with the handle to delete (B-22, B-46)', () => {
    assert.deepEqual(readBadAnswer(plan, { capacityBytes: 99n }), {
      message: 'created volume capacity 99 less than requested capacity 100',
      handle: 'test-volume-id',
    });
  });

  it('with negative bytes is refused even if no size was requested', async () => {
    const { plan: free } = await planCreation({ claim: aClaim({ spec: { resources: {} } }) });
    assert.equal(
      readBadAnswer(free, { capacityBytes: -1n }).message,
      'created volume capacity -1 less than requested capacity 0',
    );
  });

  it('with exactly the requested bytes is accepted', async () => {
    assert.equal((await completePv()).spec.capacity?.storage, '100');
  });

  it('keeps sizes that a Number can’t represent', async () => {
    const huge = aClaim({ spec: { resources: { requests: { storage: '9007199254740993' } } } });
    assert.equal(
      (await completePv({ claim: huge }, { capacityBytes: 9007199254740993n })).spec.capacity
        ?.storage,
      '9007199254740993',
    );
    assert.match(
      readBadAnswer((await planCreation({ claim: huge })).plan, {
        capacityBytes: 9007199254740992n,
      }).message,
      /^created volume capacity/,
    );
  });
});

describe('the answer for a volume with a source', () => {
  const dataSource = { apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot', name: 'test-snapshot' };
  const resources = { requests: { storage: '1000' } };
  const inNamespace = (namespace: string, spec: Partial<Claim['spec']>): Claim =>
    aClaim({ metadata: { namespace }, spec: { resources, ...spec } });
  const restored = (spec: Partial<Claim['spec']>) =>
    planCreation({
      claim: inNamespace('ns1', spec),
      driver: withCapability('CREATE_DELETE_SNAPSHOT'),
      objects: snapshotObjects(),
    });
  const echo = { type: { case: 'snapshot' as const, value: { snapshotId: 'sid' } } };

  it('must name a content source', async () => {
    const { request, plan } = await restored({ dataSource });
    assert.ok(request.volumeContentSource?.type.case === 'snapshot');
    assert.deepEqual(readBadAnswer(plan, { capacityBytes: 1000n }), {
      message: 'volume content source missing',
      handle: 'test-volume-id',
      cleanupSpelling: 'cleanup',
    });
    assert.ok(
      !('message' in readDriverAnswer(plan, { capacityBytes: 1000n, contentSource: echo })),
    );
  });

  it('is refused for its size before it is refused for a missing source', async () => {
    assert.match(
      readBadAnswer((await restored({ dataSource })).plan, { capacityBytes: 999n }).message,
      /^created volume capacity/,
    );
  });

  it('need not name a source of dataSourceRef in the own namespace (R-12)', async () => {
    assert.ok(
      !(
        'message' in
        readDriverAnswer((await restored({ dataSourceRef: dataSource })).plan, {
          capacityBytes: 1000n,
        })
      ),
    );
  });

  it('belongs to a PV template that names the snapshot', async () => {
    assert.deepEqual((await restored({ dataSource })).plan.source, {
      apiGroup: SNAPSHOT_GROUP,
      kind: 'VolumeSnapshot',
      namespace: 'ns1',
      name: 'test-snapshot',
      uid: 'snapuid',
      isEchoed: true,
      isReleased: true,
    });
  });

  it('belongs to a PV template that names the source claim', async () => {
    const claim = inNamespace('fake-pvc-namespace', {
      dataSource: { kind: 'PersistentVolumeClaim', name: 'fake-pvc' },
    });
    assert.deepEqual(
      (
        await planCreation({
          claim,
          driver: withCapability('CLONE_VOLUME'),
          objects: cloneObjects(),
        })
      ).plan.source,
      {
        apiGroup: undefined,
        kind: 'PersistentVolumeClaim',
        namespace: 'fake-pvc-namespace',
        name: 'fake-pvc',
        uid: 'fake-claim-uid',
        isEchoed: true,
        isReleased: false,
      },
    );
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ALLOW_VOLUME_MODE_CHANGE, SNAPSHOT_SOURCE_PROTECTION } from '#src/kube/keys.ts';
import { snapshots } from '#src/kube/resources.ts';
import { aClass } from './builders.ts';
import {
  aContent,
  type ApiObjects,
  aReferringClaim,
  aRestoringClaim,
  aSnapshot,
  type ContentChange,
  type FillInput,
  planSource,
  READY,
  run,
  SNAPSHOT_GROUP,
  snapshotObjects,
  withGrant,
} from './source-builders.ts';

const PREFIX = 'error getting handle for DataSource Type VolumeSnapshot by Name test-snapshot: ';
const READS = [
  'read volumesnapshots ns1/test-snapshot',
  'read volumesnapshotcontents snapcontent-snapuid',
];
const ADDS_FINALIZER = 'add-finalizer volumesnapshots ns1/test-snapshot';
const SNAPSHOT = {
  resource: 'volumesnapshots',
  namespace: 'ns1',
  name: 'test-snapshot',
  seen: '31',
};
const CONTENT = { resource: 'volumesnapshotcontents', name: 'snapcontent-snapuid', seen: '32' };

const restored = (objects: ApiObjects = snapshotObjects(), change: Partial<FillInput> = {}) =>
  run((api) => planSource(api, { claim: aRestoringClaim(), ...change }), objects);
/** Asserts that the restore uses the snapshot's handle. */
const succeeds = async (objects?: ApiObjects, change?: Partial<FillInput>) => {
  const { value, error } = await restored(objects, change);
  assert.equal(error, undefined);
  assert.deepEqual(value?.request.type?.value, { snapshotId: 'sid' });
};

interface Refusal {
  readonly objects?: ApiObjects;
  readonly change?: Partial<FillInput>;
  readonly message: string;
  readonly waitsFor: readonly object[];
}
const refuses = async ({ objects, change, message, waitsFor }: Refusal) => {
  const { error, steps } = await restored(objects, change);
  assert.equal(error?.message, PREFIX + message);
  assert.deepEqual(error.waitsFor, waitsFor);
  assert.ok(!steps.includes(ADDS_FINALIZER), 'a refused source gets no finalizer');
};

const withStatus = (status: Parameters<typeof aSnapshot>[0] & object) =>
  snapshotObjects(aSnapshot(status));
const withContent = (content: ContentChange) => snapshotObjects(aSnapshot(), aContent(content));
const allowing = (value: string) =>
  withContent({ metadata: { annotations: { [ALLOW_VOLUME_MODE_CHANGE]: value } } });
const asBlock = { claim: aRestoringClaim({ volumeMode: 'Block' }) };
const deletedWith = (finalizers: string[]) =>
  snapshotObjects(
    aSnapshot({ metadata: { deletionTimestamp: '2026-01-01T00:00:00Z', finalizers } }),
  );

describe('snapshotSource', () => {
  it('uses the handle of the content, and adds our finalizer (C-01, C-19)', async () => {
    await succeeds(undefined, { crossNamespace: true });
    const { value, steps } = await restored();
    assert.deepEqual(value, {
      request: { type: { case: 'snapshot', value: { snapshotId: 'sid' } } },
      resource: snapshots,
      object: aSnapshot(),
      finalizer: SNAPSHOT_SOURCE_PROTECTION,
    });
    assert.deepEqual(steps, [...READS, ADDS_FINALIZER]);
  });

  const of = 'snapshotcontent snapcontent-snapuid for snapshot test-snapshot';
  /** A refusal until the snapshot changes. */
  const ofSnapshot = (message: string, given: Partial<Refusal>): Refusal => ({
    message,
    waitsFor: [SNAPSHOT],
    ...given,
  });
  /** A refusal until the snapshot or its content changes. */
  const ofContent = (
    message: string,
    objects: ApiObjects,
    change: Partial<FillInput> = {},
  ): Refusal => ({ message, objects, change, waitsFor: [CONTENT, SNAPSHOT] });
  const boundElsewhere = (change: object) => {
    const volumeSnapshotRef = { ...aContent().spec.volumeSnapshotRef, ...change };
    const objects = withContent({ spec: { volumeSnapshotRef } });
    return ofContent(`${of} is bound to a different snapshot`, objects);
  };
  const otherDriver = (provisioner: string) =>
    ofSnapshot(`${of} is not handled by CSI driver of StorageClass class`, {
      change: { cls: aClass({ provisioner }) },
    });
  const otherMode = (why: string, objects: ApiObjects) =>
    ofContent(
      'requested volume ns1/my-pvc modifies the mode of the source volume but does not have ' +
        `permission to do so. ${why}`,
      objects,
      asBlock,
    );
  const NO_HANDLE = 'snapshot handle test-snapshot is not available';
  const NOT_BOUND = 'snapshot test-snapshot not bound';
  const NOT_READY = 'snapshot test-snapshot is not Ready';
  const DELETED = 'snapshot test-snapshot is being deleted';
  const boundContent = { boundVolumeSnapshotContentName: 'snapcontent-snapuid' };
  const refusals: Record<string, Refusal> = {
    'a claim smaller than the snapshot (C-02)': ofSnapshot(
      'requested volume size 100 is less than the size 1000 for the source snapshot test-snapshot',
      { change: { requestedBytes: 100n } },
    ),
    'a snapshot that is not ready (C-06)': ofSnapshot(NOT_READY, {
      objects: withStatus({ status: { ...READY, readyToUse: false } }),
    }),
    'a content that names another UID (C-08)': boundElsewhere({ uid: 'other' }),
    'a content that names another namespace (C-09)': boundElsewhere({ namespace: 'other' }),
    'a content that names another snapshot (C-10)': boundElsewhere({ name: 'other' }),
    'a content of another driver than the class (C-11)': otherDriver('other'),
    'a class whose provisioner is the in-tree name (R-41)': otherDriver('kubernetes.io/aws-ebs'),
    'a content without a status (C-12)': ofContent(NO_HANDLE, withContent({ status: null })),
    'a content without a handle (C-13)': ofContent(
      NO_HANDLE,
      withContent({ status: { readyToUse: true } }),
    ),
    'a snapshot without a status (C-14)': ofSnapshot(NOT_BOUND, {
      objects: withStatus({ status: null }),
    }),
    'a snapshot that names no content (C-15)': ofSnapshot(NOT_BOUND, {
      objects: withStatus({ status: { readyToUse: true } }),
    }),
    'a snapshot that does not say whether it is ready (C-16)': ofSnapshot(NOT_READY, {
      objects: withStatus({ status: boundContent }),
    }),
    'another volume mode without the annotation (C-18)': otherMode(
      `${ALLOW_VOLUME_MODE_CHANGE} annotation is not present on snapshotcontent ` +
        'snapcontent-snapuid',
      snapshotObjects(),
    ),
    'another volume mode with the annotation at false': otherMode(
      `${ALLOW_VOLUME_MODE_CHANGE} is set to false on snapshotcontent snapcontent-snapuid`,
      allowing('F'),
    ),
    'another volume mode with an annotation that is neither': otherMode(
      `failed to convert ${ALLOW_VOLUME_MODE_CHANGE} annotation value to boolean with error: ` +
        'strconv.ParseBool: parsing "yes": invalid syntax',
      allowing('yes'),
    ),
    'a snapshot that is being deleted (C-36)': ofSnapshot(DELETED, { objects: deletedWith([]) }),
    'a deleted snapshot with only another finalizer (C-37)': ofSnapshot(DELETED, {
      objects: deletedWith(['other']),
    }),
    'a snapshot that does not exist': {
      objects: [],
      message:
        'error getting snapshot test-snapshot from api server: ' +
        'volumesnapshots.snapshot.storage.k8s.io "test-snapshot" not found',
      waitsFor: [{ ...SNAPSHOT, seen: '' }],
    },
    'a content that does not exist': {
      objects: [[snapshots, aSnapshot()]],
      message: `error getting ${of}`,
      waitsFor: [{ ...CONTENT, seen: '' }, SNAPSHOT],
    },
    'a restore size that is no quantity': ofSnapshot(
      'VolumeSnapshot test-snapshot: status.restoreSize: "much" is not a quantity; write a ' +
        'number with an optional unit, like 5Gi, 500M or 1e9',
      { objects: withStatus({ status: { ...READY, restoreSize: 'much' } }) },
    ),
    'a claim that asks for no size': {
      change: { claim: aRestoringClaim({ resources: {} }) },
      message: 'error getting capacity for PVC my-pvc when creating snapshot test-snapshot',
      waitsFor: [],
    },
  };
  for (const [title, refusal] of Object.entries(refusals))
    it(`refuses ${title}`, () => refuses(refusal));

  it('uses a snapshot that is being deleted and has our finalizer (C-38)', async () => {
    const { value, steps } = await restored(deletedWith([SNAPSHOT_SOURCE_PROTECTION]));
    assert.equal(value?.request.type?.case, 'snapshot');
    assert.deepEqual(steps, READS);
  });

  it('changes the volume mode if the content allows it (C-17)', () =>
    succeeds(allowing('true'), asBlock));

  it('changes the volume mode without --prevent-volume-mode-conversion', () =>
    succeeds(snapshotObjects(), { ...asBlock, preventVolumeModeConversion: false }));

  it('accepts a content without a volume mode', async () => {
    const { sourceVolumeMode: _, ...spec } = aContent().spec;
    await succeeds(snapshotObjects(aSnapshot(), { ...aContent(), spec }), asBlock);
  });

  it('accepts a snapshot without a size', async () => {
    const { restoreSize: _, ...status } = READY;
    await succeeds(snapshotObjects(aSnapshot({ status })), {
      requestedBytes: 0n,
      claim: aRestoringClaim({ resources: {} }),
    });
  });

  it('reports the first of several faults, in upstream’s order', async () => {
    const status = { ...boundContent, readyToUse: false };
    const objects = snapshotObjects(aSnapshot({ status }), aContent({ status: null }));
    await refuses({ ...otherDriver('other'), objects });
    await refuses(ofSnapshot(NOT_READY, { objects, change: { requestedBytes: 1n } }));
  });

  it('uses a snapshot of another namespace that a grant names', async () => {
    const to = { group: SNAPSHOT_GROUP, kind: 'VolumeSnapshot' };
    const ref = { apiGroup: to.group, kind: to.kind, name: 'test-snapshot', namespace: 'ns1' };
    const claim = aReferringClaim(ref);
    await succeeds(withGrant(snapshotObjects(), { to }), { claim, crossNamespace: true });
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CLONE_PROTECTION, SNAPSHOT_SOURCE_PROTECTION } from '#src/kube/keys.ts';
import type { Claim, KubeObject } from '#src/kube/objects.ts';
import { claims, type Resource, snapshots } from '#src/kube/resources.ts';
import {
  addSourceFinalizer,
  type ContentSource,
  dataSourceOf,
  kindOf,
  parseSourceBytes,
  type SourceRef,
} from '#src/volumes/data-source.ts';
import { DEFAULT_GATES } from '#src/volumes/flags.ts';
import { aClaim } from './builders.ts';
import {
  aCloningClaim,
  aReferringClaim,
  aRestoringClaim,
  aSnapshot,
  aSourceClaim,
  cloneObjects,
  refuseSteps,
  run,
  SNAPSHOT_GROUP,
  snapshotObjects,
  withGrant,
} from './source-builders.ts';

const OPEN = { ...DEFAULT_GATES, CrossNamespaceVolumeDataSource: true };
const sourceOf = (claim: Claim, gates = DEFAULT_GATES) => run(dataSourceOf(claim, gates), []);
const NOT_ALLOWED =
  "accessing ns1/fake-pvc of PersistentVolumeClaim dataSource from ns2/my-pvc isn't allowed";

describe('dataSourceOf', () => {
  it('is undefined for a plain claim', () =>
    assert.deepEqual(sourceOf(aClaim()), { value: undefined, steps: [] }));

  it('finds dataSource in the namespace of the claim', () => {
    assert.deepEqual(sourceOf(aRestoringClaim()).value, {
      apiGroup: SNAPSHOT_GROUP,
      kind: 'VolumeSnapshot',
      name: 'test-snapshot',
      namespace: 'ns1',
      isEchoed: true,
      isReleased: true,
    });
  });

  it('finds dataSourceRef in the namespace that it names', () => {
    const { value, steps } = run(
      dataSourceOf(aReferringClaim({ namespace: 'ns1' }), OPEN),
      withGrant([]),
    );
    const named = {
      apiGroup: undefined,
      kind: 'PersistentVolumeClaim',
      name: 'fake-pvc',
      namespace: 'ns1',
    };
    assert.deepEqual(value, { ...named, isEchoed: true, isReleased: false });
    assert.deepEqual(steps, ['list referencegrants ns1']);
  });

  it('ignores dataSourceRef if dataSource is set', () => {
    const claim = aCloningClaim({
      dataSourceRef: { kind: 'Other', name: 'other', namespace: 'far' },
    });
    assert.equal(sourceOf(claim).value?.name, 'fake-pvc');
  });

  it('reads a null group, which the API server sends for the core group', () => {
    const claim = aCloningClaim({
      dataSource: {
        apiGroup: null as unknown as string,
        kind: 'PersistentVolumeClaim',
        name: 'fake-pvc',
      },
    });
    assert.equal(sourceOf(claim).value?.apiGroup, undefined);
  });

  it('accepts a claim without a namespace', () => {
    const { namespace: _, ...metadata } = aCloningClaim().metadata;
    assert.equal(sourceOf({ ...aCloningClaim(), metadata }).value?.namespace, '');
  });

  it('needs no echo of a dataSourceRef without a namespace (R-12)', () => {
    assert.equal(sourceOf(aReferringClaim({})).value?.isEchoed, false);
  });

  it('needs an echo, but no grant, for a dataSourceRef to the own namespace', () => {
    const { value, steps } = sourceOf(aReferringClaim({ namespace: 'ns2' }), OPEN);
    assert.equal(value?.isEchoed, true);
    assert.deepEqual(steps, []);
  });

  it('leaves the finalizer on a dataSourceRef’s snapshot to the sweep', () => {
    const { value } = sourceOf(
      aReferringClaim({ apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot' }),
    );
    assert.equal(value?.isReleased, false);
  });

  it('has no snapshot finalizer to remove after a clone', () =>
    assert.equal(sourceOf(aCloningClaim()).value?.isReleased, false));

  it('refuses any namespace without the feature gate, even the claim’s own', () => {
    for (const namespace of ['ns1', 'ns2']) {
      const { error, steps } = sourceOf(aReferringClaim({ namespace }));
      assert.equal(
        error?.message,
        'dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is ' +
          'disabled',
      );
      assert.deepEqual(steps, []);
    }
  });

  it('names both sides if no grant allows it', () => {
    assert.equal(sourceOf(aReferringClaim({ namespace: 'ns1' }), OPEN).error?.message, NOT_ALLOWED);
  });

  it('lists no grants for an empty namespace, which would be all of them', () => {
    for (const gates of [DEFAULT_GATES, OPEN]) {
      const { error, steps } = sourceOf(aReferringClaim({ namespace: '' }), gates);
      assert.match(error?.message ?? '', /^accessing \/fake-pvc of .* isn't allowed$/);
      assert.deepEqual(steps, []);
    }
  });

  it('treats a server without the kind ReferenceGrant as one without grants', () => {
    const { error } = run(dataSourceOf(aReferringClaim({ namespace: 'ns1' }), OPEN), [], () => ({
      kind: 'absent',
    }));
    assert.equal(error?.message, NOT_ALLOWED);
  });

  it('repeats the server’s message if the grants can’t be listed', () => {
    const { error } = run(
      dataSourceOf(aReferringClaim({ namespace: 'ns1' }), OPEN),
      [],
      refuseSteps('list', 403, 'forbidden'),
    );
    assert.equal(
      error?.message,
      'error getting ReferenceGrants in ns1 namespace from api server: forbidden',
    );
  });
});

describe('kindOf', () => {
  const source = {
    apiGroup: undefined,
    kind: 'PersistentVolumeClaim',
    name: 'it',
    namespace: 'ns',
    isEchoed: true,
    isReleased: false,
  };
  const ofKind = (kind: string, apiGroup: string | undefined) =>
    kindOf({ ...source, kind, apiGroup }, 'my-pvc');

  it('restores a VolumeSnapshot', () =>
    assert.equal(ofKind('VolumeSnapshot', SNAPSHOT_GROUP), 'snapshot'));
  it('clones a claim, whatever the group', () => {
    for (const group of [undefined, '', 'any.group.io'])
      assert.equal(ofKind('PersistentVolumeClaim', group), 'clone');
  });
  it('leaves any other kind to a populator (B-27)', () =>
    assert.equal(ofKind('MyPopulator', 'my.example.io'), 'populator'));
  it('leaves another kind of the snapshot group to a populator', () => {
    assert.equal(ofKind('VolumeGroupSnapshot', SNAPSHOT_GROUP), 'populator');
  });

  const refused = (change: Partial<SourceRef>, message: string) =>
    assert.throws(() => kindOf({ ...source, ...change }, 'my-pvc'), {
      name: 'RefusedError',
      message,
    });
  const WRONG_GROUP =
    'the PVC source does not belong to the right APIGroup. Expected snapshot.storage.k8s.io, Got ';

  it('refuses a snapshot of another group (C-05)', () => {
    refused(
      { kind: 'VolumeSnapshot', apiGroup: 'unsupported.group.io' },
      `${WRONG_GROUP}unsupported.group.io`,
    );
  });
  it('refuses a snapshot without a group', () => refused({ kind: 'VolumeSnapshot' }, WRONG_GROUP));
  it('refuses an empty name first (C-03)', () => {
    refused({ kind: 'VolumeSnapshot', name: '' }, 'the PVC source not found for PVC my-pvc');
  });
  it('refuses an empty name of any kind (C-04)', () => {
    refused({ kind: 'UnsupportedKind', name: '' }, 'the PVC source not found for PVC my-pvc');
  });
});

describe('addSourceFinalizer', () => {
  const ofSnapshot = (object: KubeObject = aSnapshot()): ContentSource => ({
    request: { type: { case: 'snapshot', value: { snapshotId: 'sid' } } },
    resource: snapshots,
    object,
    finalizer: SNAPSHOT_SOURCE_PROTECTION,
  });
  const ofClone: ContentSource = {
    request: { type: { case: 'volume', value: { volumeId: 'vid' } } },
    resource: claims,
    object: aSourceClaim(),
    finalizer: CLONE_PROTECTION,
  };
  const waitsOn = (resource: Resource, { metadata }: KubeObject) => ({
    resource: resource.plural,
    namespace: metadata.namespace,
    name: metadata.name,
    seen: '',
  });

  it('adds the finalizer', () => {
    assert.deepEqual(run(addSourceFinalizer(ofSnapshot()), snapshotObjects()).steps, [
      'add-finalizer volumesnapshots ns1/test-snapshot',
    ]);
    assert.deepEqual(run(addSourceFinalizer(ofClone), cloneObjects()).steps, [
      'add-finalizer persistentvolumeclaims fake-pvc-namespace/fake-pvc',
    ]);
  });

  it('adds the finalizer beside others', () => {
    const other = ofSnapshot(aSnapshot({ metadata: { finalizers: ['other'] } }));
    assert.equal(run(addSourceFinalizer(other), snapshotObjects()).steps.length, 1);
  });

  it('writes nothing if the object has the finalizer', () => {
    const protectedOne = ofSnapshot(
      aSnapshot({ metadata: { finalizers: [SNAPSHOT_SOURCE_PROTECTION] } }),
    );
    assert.deepEqual(run(addSourceFinalizer(protectedOne), []), { value: undefined, steps: [] });
  });

  it('goes on without it if the server forbids it on a snapshot (R-13)', () => {
    const { error } = run(
      addSourceFinalizer(ofSnapshot()),
      snapshotObjects(),
      refuseSteps('add-finalizer', 403, 'forbidden'),
    );
    assert.equal(error, undefined);
  });

  it("refuses with the server's message on a conflict (R-13)", () => {
    const { error } = run(
      addSourceFinalizer(ofSnapshot()),
      snapshotObjects(),
      refuseSteps('add-finalizer', 409, 'the object has been modified'),
    );
    assert.equal(error?.message, 'the object has been modified');
  });

  it('refuses a clone if the server forbids the finalizer on its source', () => {
    const { error } = run(
      addSourceFinalizer(ofClone),
      cloneObjects(),
      refuseSteps('add-finalizer', 403, 'forbidden'),
    );
    assert.equal(error?.message, 'forbidden');
  });

  it('waits for a snapshot that was deleted meanwhile', () => {
    const { error } = run(addSourceFinalizer(ofSnapshot()), []);
    assert.equal(
      error?.message,
      'volumesnapshots.snapshot.storage.k8s.io "test-snapshot" not found',
    );
    assert.deepEqual(error.waitsFor, [waitsOn(snapshots, aSnapshot())]);
  });

  it('waits for a source claim that was deleted meanwhile', () => {
    const { error } = run(addSourceFinalizer(ofClone), []);
    assert.equal(error?.message, 'persistentvolumeclaims "fake-pvc" not found');
    assert.deepEqual(error.waitsFor, [waitsOn(claims, aSourceClaim())]);
  });
});

describe('parseSourceBytes', () => {
  it('reads an exact size', () =>
    assert.equal(parseSourceBytes(claims, aSourceClaim(), 'size', '1.5Ki'), 1536n));

  it('lets the error of a defect pass', () => {
    const broken = new Error('a defect');
    const text = {
      toString: () => {
        throw broken;
      },
    } as unknown as string;
    assert.throws(
      () => parseSourceBytes(claims, aSourceClaim(), 'size', text),
      (error) => error === broken,
    );
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CLONE_PROTECTION, SNAPSHOT_SOURCE_PROTECTION } from '#src/kube/keys.ts';
import type { Claim, KubeObject } from '#src/kube/objects.ts';
import { claims, snapshots } from '#src/kube/resources.ts';
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
  run,
  SNAPSHOT_GROUP,
  snapshotObjects,
  withGrant,
} from './source-builders.ts';

const OPEN = { ...DEFAULT_GATES, CrossNamespaceVolumeDataSource: true };
const sourceOf = (claim: Claim, gates = DEFAULT_GATES) =>
  run((api) => dataSourceOf(api, claim, gates), []);
const NOT_ALLOWED =
  "accessing ns1/fake-pvc of PersistentVolumeClaim dataSource from ns2/my-pvc isn't allowed";

describe('dataSourceOf', () => {
  it('is undefined for a plain claim', async () =>
    assert.deepEqual(await sourceOf(aClaim()), { value: undefined, steps: [] }));

  it('finds dataSource in the namespace of the claim', async () => {
    assert.deepEqual((await sourceOf(aRestoringClaim())).value, {
      apiGroup: SNAPSHOT_GROUP,
      kind: 'VolumeSnapshot',
      name: 'test-snapshot',
      namespace: 'ns1',
      isEchoed: true,
      isReleased: true,
    });
  });

  it('finds dataSourceRef in the namespace that it names', async () => {
    const { value, steps } = await run(
      (api) => dataSourceOf(api, aReferringClaim({ namespace: 'ns1' }), OPEN),
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

  it('ignores dataSourceRef if dataSource is set', async () => {
    const claim = aCloningClaim({
      dataSourceRef: { kind: 'Other', name: 'other', namespace: 'far' },
    });
    assert.equal((await sourceOf(claim)).value?.name, 'fake-pvc');
  });

  it('reads a null group, which the API server sends for the core group', async () => {
    const claim = aCloningClaim({
      dataSource: {
        apiGroup: null as unknown as string,
        kind: 'PersistentVolumeClaim',
        name: 'fake-pvc',
      },
    });
    assert.equal((await sourceOf(claim)).value?.apiGroup, undefined);
  });

  it('accepts a claim without a namespace', async () => {
    const { namespace: _, ...metadata } = aCloningClaim().metadata;
    assert.equal((await sourceOf({ ...aCloningClaim(), metadata })).value?.namespace, '');
  });

  it('needs no echo of a dataSourceRef without a namespace (R-12)', async () => {
    assert.equal((await sourceOf(aReferringClaim({}))).value?.isEchoed, false);
  });

  it('needs an echo, but no grant, for a dataSourceRef to the own namespace', async () => {
    const { value, steps } = await sourceOf(aReferringClaim({ namespace: 'ns2' }), OPEN);
    assert.equal(value?.isEchoed, true);
    assert.deepEqual(steps, []);
  });

  it('leaves the finalizer on a dataSourceRef’s snapshot to the sweep', async () => {
    const { value } = await sourceOf(
      aReferringClaim({ apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot' }),
    );
    assert.equal(value?.isReleased, false);
  });

  it('has no snapshot finalizer to remove after a clone', async () =>
    assert.equal((await sourceOf(aCloningClaim())).value?.isReleased, false));

  it('refuses any namespace without the feature gate, even the claim’s own', async () => {
    for (const namespace of ['ns1', 'ns2']) {
      const { error, steps } = await sourceOf(aReferringClaim({ namespace }));
      assert.equal(
        error?.message,
        'dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is ' +
          'disabled',
      );
      assert.deepEqual(steps, []);
    }
  });

  it('names both sides if no grant allows it', async () => {
    assert.equal(
      (await sourceOf(aReferringClaim({ namespace: 'ns1' }), OPEN)).error?.message,
      NOT_ALLOWED,
    );
  });

  it('lists no grants for an empty namespace, which would be all of them', async () => {
    for (const gates of [DEFAULT_GATES, OPEN]) {
      const { error, steps } = await sourceOf(aReferringClaim({ namespace: '' }), gates);
      assert.match(error?.message ?? '', /^accessing \/fake-pvc of .* isn't allowed$/);
      assert.deepEqual(steps, []);
    }
  });

  it('treats a server without the kind ReferenceGrant as one without grants', async () => {
    const { error } = await run(
      (api) => dataSourceOf(api, aReferringClaim({ namespace: 'ns1' }), OPEN),
      [],
      { verb: 'list', code: 404, message: 'the server could not find the requested resource' },
    );
    assert.equal(error?.message, NOT_ALLOWED);
  });

  it('repeats the server’s message if the grants can’t be listed', async () => {
    const { error } = await run(
      (api) => dataSourceOf(api, aReferringClaim({ namespace: 'ns1' }), OPEN),
      [],
      { verb: 'list', code: 403, message: 'forbidden' },
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
  it('adds the finalizer', async () => {
    assert.deepEqual(
      (await run((api) => addSourceFinalizer(api, ofSnapshot()), snapshotObjects())).steps,
      ['add-finalizer volumesnapshots ns1/test-snapshot'],
    );
    assert.deepEqual((await run((api) => addSourceFinalizer(api, ofClone), cloneObjects())).steps, [
      'add-finalizer persistentvolumeclaims fake-pvc-namespace/fake-pvc',
    ]);
  });

  it('adds the finalizer beside others', async () => {
    const other = ofSnapshot(aSnapshot({ metadata: { finalizers: ['other'] } }));
    assert.equal(
      (await run((api) => addSourceFinalizer(api, other), snapshotObjects())).steps.length,
      1,
    );
  });

  it('writes nothing if the object has the finalizer', async () => {
    const protectedOne = ofSnapshot(
      aSnapshot({ metadata: { finalizers: [SNAPSHOT_SOURCE_PROTECTION] } }),
    );
    assert.deepEqual(await run((api) => addSourceFinalizer(api, protectedOne), []), {
      value: undefined,
      steps: [],
    });
  });

  it('goes on without it if the server forbids it on a snapshot (R-13)', async () => {
    const { error } = await run((api) => addSourceFinalizer(api, ofSnapshot()), snapshotObjects(), {
      verb: 'add-finalizer',
      code: 403,
      message: 'forbidden',
    });
    assert.equal(error, undefined);
  });

  it("refuses with the server's message on a conflict (R-13)", async () => {
    const { error } = await run((api) => addSourceFinalizer(api, ofSnapshot()), snapshotObjects(), {
      verb: 'add-finalizer',
      code: 409,
      message: 'the object has been modified',
    });
    assert.equal(error?.message, 'the object has been modified');
  });

  it('refuses a clone if the server forbids the finalizer on its source', async () => {
    const { error } = await run((api) => addSourceFinalizer(api, ofClone), cloneObjects(), {
      verb: 'add-finalizer',
      code: 403,
      message: 'forbidden',
    });
    assert.equal(error?.message, 'forbidden');
  });

  it('refuses a snapshot that was deleted meanwhile', async () => {
    const { error } = await run((api) => addSourceFinalizer(api, ofSnapshot()), []);
    assert.equal(
      error?.message,
      'volumesnapshots.snapshot.storage.k8s.io "test-snapshot" not found',
    );
  });

  it('refuses a source claim that was deleted meanwhile', async () => {
    const { error } = await run((api) => addSourceFinalizer(api, ofClone), []);
    assert.equal(error?.message, 'persistentvolumeclaims "fake-pvc" not found');
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

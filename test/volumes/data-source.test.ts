import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CLONE_PROTECTION, SNAPSHOT_SOURCE_PROTECTION } from '#src/kube/keys.ts';
import type { ListOptions } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, type Resource, snapshots } from '#src/kube/resources.ts';
import {
  addSourceFinalizer,
  type ContentSource,
  dataSourceOf,
  kindOf,
  type SourceRef,
} from '#src/volumes/data-source.ts';
import { DEFAULT_GATES } from '#src/volumes/flags.ts';
import { aClaim } from './builders.ts';
import {
  type ApiObjects,
  aCloningClaim,
  anApi,
  aReferringClaim,
  aRestoringClaim,
  aSnapshot,
  aSourceClaim,
  cloneObjects,
  type Refused,
  run,
  SNAPSHOT_GROUP,
  snapshotObjects,
  withGrant,
} from './source-builders.ts';

const OPEN = { ...DEFAULT_GATES, CrossNamespaceVolumeDataSource: true };
const sourceOf = (claim: Claim, gates = DEFAULT_GATES, objects: ApiObjects = [], no?: Refused) =>
  run((api) => dataSourceOf(api, claim, gates), objects, no);
const inNs1 = aReferringClaim({ namespace: 'ns1' });
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
    const { value, steps } = await sourceOf(inNs1, OPEN, withGrant([]));
    assert.deepEqual([value?.name, value?.namespace, value?.isEchoed], ['fake-pvc', 'ns1', true]);
    assert.deepEqual(steps, ['list referencegrants ns1']);
  });

  it('ignores dataSourceRef if dataSource is set', async () => {
    const dataSourceRef = { kind: 'Other', name: 'other', namespace: 'far' };
    assert.equal((await sourceOf(aCloningClaim({ dataSourceRef }))).value?.name, 'fake-pvc');
  });

  it('accepts a claim without a namespace', async () => {
    const { namespace: _, ...metadata } = aCloningClaim().metadata;
    assert.equal((await sourceOf({ ...aCloningClaim(), metadata })).value?.namespace, '');
  });

  it('needs no echo of a dataSourceRef without a namespace (R-12)', async () =>
    assert.equal((await sourceOf(aReferringClaim({}))).value?.isEchoed, false));

  it('needs an echo, but no grant, for a dataSourceRef to the own namespace', async () => {
    const { value, steps } = await sourceOf(aReferringClaim({ namespace: 'ns2' }), OPEN);
    assert.deepEqual([value?.isEchoed, steps], [true, []]);
  });

  it('leaves the finalizer on a dataSourceRef’s snapshot to the sweep', async () => {
    const claim = aReferringClaim({ apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot' });
    assert.equal((await sourceOf(claim)).value?.isReleased, false);
  });

  it('refuses any namespace without the feature gate, even the claim’s own', async () => {
    const message =
      'dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is ' +
      'disabled';
    for (const namespace of ['ns1', 'ns2'])
      assert.equal((await sourceOf(aReferringClaim({ namespace }))).error?.message, message);
  });

  it('lists no grants for an empty namespace, which would be all of them', async () => {
    const { error, steps } = await sourceOf(aReferringClaim({ namespace: '' }), OPEN);
    assert.match(error?.message ?? '', /^accessing \/fake-pvc of .* isn't allowed$/);
    assert.deepEqual(steps, []);
  });

  it('treats a server without the kind ReferenceGrant as one without grants', async () => {
    const message = 'the server could not find the requested resource';
    const { error } = await sourceOf(inNs1, OPEN, [], { verb: 'list', code: 404, message });
    assert.equal(error?.message, NOT_ALLOWED);
  });

  it('finds grants of the version v1beta1 where the server does not know v1', async () => {
    const api = anApi(withGrant([]));
    const serverMessage = 'the server could not find the requested resource';
    const unknown = new KubeError({ code: 404, reason: 'NotFound', serverMessage });
    const old = {
      ...api,
      list: <T>(resource: Resource, o?: ListOptions) =>
        resource.version === 'v1' ? Promise.reject(unknown) : api.list<T>(resource, o),
    };
    assert.equal((await dataSourceOf(old, inNs1, OPEN))?.name, 'fake-pvc');
  });

  it('repeats the server’s message if the grants can’t be listed', async () => {
    const refused = { verb: 'list', code: 403, message: 'forbidden' } as const;
    assert.equal(
      (await sourceOf(inNs1, OPEN, [], refused)).error?.message,
      'error getting ReferenceGrants in ns1 namespace from api server: forbidden',
    );
  });
});

describe('kindOf', () => {
  const of = (kind: string, apiGroup?: string, name = 'it'): SourceRef => ({
    kind,
    apiGroup,
    name,
    namespace: 'ns',
    isEchoed: true,
    isReleased: false,
  });
  const kinds = [
    ['restores a VolumeSnapshot', of('VolumeSnapshot', SNAPSHOT_GROUP), 'snapshot'],
    ['clones a claim, whatever the group', of('PersistentVolumeClaim', 'any.io'), 'clone'],
    ['leaves any other kind to a populator (B-27)', of('My', 'my.example.io'), 'populator'],
    [
      'leaves another kind of the snapshot group to a populator',
      of('VolumeGroupSnapshot', SNAPSHOT_GROUP),
      'populator',
    ],
  ] as const;
  for (const [title, source, kind] of kinds)
    it(title, () => assert.equal(kindOf(source, 'my-pvc'), kind));

  const wrongGroup = (group: string) =>
    'the PVC source does not belong to the right APIGroup. Expected snapshot.storage.k8s.io, ' +
    `Got ${group}`;
  const NOT_FOUND = 'the PVC source not found for PVC my-pvc';
  const refusals = [
    ['a snapshot of another group (C-05)', of('VolumeSnapshot', 'un.io'), wrongGroup('un.io')],
    ['a snapshot without a group', of('VolumeSnapshot'), wrongGroup('')],
    ['an empty name first (C-03)', of('VolumeSnapshot', undefined, ''), NOT_FOUND],
    ['an empty name of any kind (C-04)', of('UnsupportedKind', undefined, ''), NOT_FOUND],
  ] as const;
  for (const [title, source, message] of refusals)
    it(`refuses ${title}`, () =>
      assert.throws(() => kindOf(source, 'my-pvc'), { name: 'RefusedError', message }));
});

describe('addSourceFinalizer', () => {
  const ofSnapshot = (...finalizers: string[]): ContentSource => ({
    request: { type: { case: 'snapshot', value: { snapshotId: 'sid' } } },
    resource: snapshots,
    object: aSnapshot({ metadata: { finalizers } }),
    finalizer: SNAPSHOT_SOURCE_PROTECTION,
  });
  const ofClone: ContentSource = {
    request: { type: { case: 'volume', value: { volumeId: 'vid' } } },
    resource: claims,
    object: aSourceClaim(),
    finalizer: CLONE_PROTECTION,
  };
  const adding = (source: ContentSource, objects: ApiObjects, code?: number, message = 'no') =>
    run(
      (api) => addSourceFinalizer(api, source),
      objects,
      code === undefined ? undefined : { verb: 'add-finalizer', code, message },
    );

  it('writes nothing if the object has the finalizer', async () =>
    assert.deepEqual((await adding(ofSnapshot(SNAPSHOT_SOURCE_PROTECTION), [])).steps, []));

  it('goes on without it if the server forbids it on a snapshot (R-13)', async () =>
    assert.equal((await adding(ofSnapshot(), snapshotObjects(), 403)).error, undefined));

  it("refuses with the server's message on a conflict (R-13)", async () => {
    const { error } = await adding(ofSnapshot(), snapshotObjects(), 409, 'was modified');
    assert.equal(error?.message, 'was modified');
  });

  it('refuses a clone if the server forbids the finalizer on its source', async () => {
    const { error } = await adding(ofClone, cloneObjects(), 403, 'forbidden');
    assert.equal(error?.message, 'forbidden');
  });

  it('refuses a source that was deleted meanwhile', async () => {
    const { error } = await adding(ofClone, []);
    assert.equal(error?.message, 'persistentvolumeclaims "fake-pvc" not found');
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CLONE_PROTECTION, SNAPSHOT_SOURCE_PROTECTION } from '#src/kube/keys.ts';
import type { ListOptions } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim, DataSourceRef, ReferenceGrant } from '#src/kube/objects.ts';
import { claims, referenceGrants, type Resource, snapshots } from '#src/kube/resources.ts';
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
  aGrant,
  type ApiObjects,
  aCloningClaim,
  anApi,
  type GrantChange,
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
const NULL = null as unknown as string;
const SNAPSHOTS = { group: SNAPSHOT_GROUP, kind: 'VolumeSnapshot' };
/** References to a claim and to a snapshot, and the kind of each in a grant. */
const KINDS: readonly { readonly ref: Partial<DataSourceRef>; readonly to: object }[] = [
  { ref: { kind: 'PersistentVolumeClaim' }, to: {} },
  { ref: { apiGroup: SNAPSHOTS.group, kind: SNAPSHOTS.kind }, to: SNAPSHOTS },
];

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

  it('ignores dataSourceRef if dataSource is set', async () => {
    const dataSourceRef = { kind: 'Other', name: 'other', namespace: 'far' };
    assert.equal((await sourceOf(aCloningClaim({ dataSourceRef }))).value?.name, 'fake-pvc');
  });

  it('accepts a claim without a namespace', async () => {
    const { namespace: _, ...metadata } = aCloningClaim().metadata;
    assert.equal((await sourceOf({ ...aCloningClaim(), metadata })).value?.namespace, '');
  });

  it('finds dataSourceRef in the own namespace without a grant, and needs an echo if it names that (C-24, C-25, D-34, D-35, D-36, R-12)', async () => {
    for (const { ref } of KINDS)
      for (const own of [{ namespace: 'ns2' }, {}, { namespace: NULL }]) {
        const { value, steps } = await sourceOf(aReferringClaim({ ...ref, ...own }), OPEN);
        const expected = ['fake-pvc', 'ns2', own.namespace === 'ns2'];
        assert.deepEqual([value?.name, value?.namespace, value?.isEchoed], expected);
        assert.deepEqual(steps, []);
      }
  });

  it('leaves the finalizer on a dataSourceRef’s snapshot to the sweep', async () => {
    const claim = aReferringClaim({ apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot' });
    assert.equal((await sourceOf(claim)).value?.isReleased, false);
  });

  it('refuses any namespace without the feature gate, granted or not, even the claim’s own (C-27, D-49)', async () => {
    const message =
      'dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is ' +
      'disabled';
    for (const { ref, to } of KINDS)
      for (const namespace of ['ns1', 'ns2']) {
        const claim = aReferringClaim({ ...ref, namespace });
        const { error, steps } = await sourceOf(claim, undefined, withGrant([], { to }));
        assert.deepEqual([error?.message, steps], [message, []]);
      }
  });
});

describe('a source in another namespace may be used', () => {
  const using = (ref: Partial<DataSourceRef>, ...grants: readonly ReferenceGrant[]) =>
    sourceOf(
      aReferringClaim({ namespace: 'ns1', ...ref }),
      OPEN,
      grants.map((grant) => [referenceGrants, grant]),
    );
  const mayUse = async (ref: Partial<DataSourceRef>, ...grants: readonly ReferenceGrant[]) => {
    const { value, steps } = await using(ref, ...grants);
    assert.deepEqual(steps, ['list referencegrants ns1']);
    return value?.namespace === 'ns1';
  };

  const granted: Readonly<Record<string, GrantChange>> = {
    'if a grant names its kind (C-20, C-22, D-32, J-01, J-04, J-06)': {},
    'if a grant names it (C-21, D-33, J-02)': { to: { name: 'fake-pvc' } },
    'if the name in the grant is empty (C-23, J-05)': { to: { name: '' } },
  };
  for (const [title, grant] of Object.entries(granted))
    it(title, async () => {
      for (const { ref, to } of KINDS)
        assert.ok(await mayUse(ref, aGrant({ ...grant, to: { ...to, ...grant.to } })));
    });

  const denied: Readonly<Record<string, GrantChange | undefined>> = {
    'without any grant (C-26, D-48, J-08, J-09)': undefined,
    'with a grant in another namespace (C-28, D-40, J-11)': { namespace: 'ns3' },
    'with a grant from another group (C-29, D-41, J-12)': { from: { group: 'wrong' } },
    'with a grant from another kind (C-30, D-42, J-13)': { from: { kind: 'Wrong' } },
    'with a grant from another namespace (C-31, D-43, J-14)': { from: { namespace: 'ns3' } },
    'with a grant to another group (C-33, D-44, J-15)': { to: { group: 'wrong' } },
    'with a grant to another kind (C-32, D-45, J-16)': { to: { kind: 'Wrong' } },
    'with a grant to another name (C-34, D-46, J-17)': { to: { name: 'other' } },
    'with a grant whose `from` is empty (J-21)': { from: null },
    'with a grant whose `to` is empty (J-22)': { to: null },
    'with a grant whose `from` and `to` are empty (C-35, D-47, J-23)': { from: null, to: null },
  };
  for (const [title, grant] of Object.entries(denied))
    it(`not ${title}`, async () => {
      for (const { ref, to } of KINDS) {
        const own = grant?.to === null ? null : { ...to, ...grant?.to };
        const grants = grant === undefined ? [] : [aGrant({ ...grant, to: own })];
        const { error, steps } = await using(ref, ...grants);
        const from = `${ref.kind} dataSource from ns2/my-pvc`;
        assert.equal(error?.message, `accessing ns1/fake-pvc of ${from} isn't allowed`);
        assert.deepEqual(steps, ['list referencegrants ns1']);
      }
    });

  const hello = { group: 'hello.k8s.io/v1alpha1', kind: 'Hello' };
  const greeting = { apiGroup: hello.group, kind: hello.kind };
  const [claim, snapshot] = [{}, { kind: SNAPSHOTS.kind }];
  const kinds: readonly (readonly [string, Partial<DataSourceRef>, GrantChange, boolean])[] = [
    ['if its kind is an arbitrary one (J-07)', greeting, { to: hello }, true],
    ['not if the grant is to another arbitrary kind (D-39, J-10)', greeting, {}, false],
    ['if its group is empty', { ...claim, apiGroup: '' }, {}, true],
    ['if its group is null (D-37)', { ...claim, apiGroup: NULL }, {}, true],
    ['if it is a claim without a group (D-38, J-03)', claim, {}, true],
    ['not if it is a snapshot without a group (J-19)', snapshot, { to: SNAPSHOTS }, false],
    ['not if it is a claim, by a grant to snapshots (J-18)', claim, { to: SNAPSHOTS }, false],
    ['not if it is a snapshot, by a grant to claims (J-20)', snapshot, {}, false],
  ];
  for (const [title, ref, grant, expected] of kinds)
    it(title, async () => assert.equal(await mayUse(ref, aGrant(grant)), expected));

  const { metadata, spec } = aGrant();
  const wrong = { group: 'wrong', kind: 'Pod', namespace: 'ns9' };
  const several: Readonly<Record<string, readonly [readonly ReferenceGrant[], boolean]>> = {
    'by one grant of several': [[aGrant({ to: null }), aGrant()], true],
    'not by `from` and `to` of different grants': [
      [aGrant({ to: null }), aGrant({ from: null })],
      false,
    ],
    'not by a grant that is empty or lacks `from` or `to`': [
      [{ metadata }, { metadata, spec: { from: spec.from } }, { metadata, spec: { to: spec.to } }],
      false,
    ],
    'by every entry of a grant': [
      [{ metadata, spec: { from: [wrong, ...spec.from], to: [wrong, ...spec.to] } }],
      true,
    ],
  };
  for (const [title, [grants, expected]] of Object.entries(several))
    it(title, async () => assert.equal(await mayUse(claim, ...grants), expected));

  it('by a grant of the version v1beta1 where the server does not know v1', async () => {
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

  for (const [code, serverMessage, message] of [
    [404, 'the server could not find the requested resource', NOT_ALLOWED],
    [403, 'forbidden', 'error getting ReferenceGrants in ns1 namespace from api server: forbidden'],
  ] as const)
    it(`not if the server answers ${code} to the list of grants`, async () => {
      const refused = { verb: 'list', code, message: serverMessage } as const;
      assert.equal((await sourceOf(inNs1, OPEN, [], refused)).error?.message, message);
    });

  it('not if the namespace is empty: that would list the grants of all', async () => {
    const { error, steps } = await sourceOf(aReferringClaim({ namespace: '' }), OPEN);
    assert.match(error?.message ?? '', /^accessing \/fake-pvc of .* isn't allowed$/);
    assert.deepEqual(steps, []);
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
    [
      'leaves another kind of the snapshot group to a populator',
      of('VolumeGroupSnapshot', SNAPSHOT_GROUP),
      'populator',
    ],
  ] as const;
  for (const [title, source, kind] of kinds)
    it(title, () => assert.equal(kindOf(source, 'my-pvc'), kind));

  const refusals = [
    [
      'a snapshot without a group',
      of('VolumeSnapshot'),
      'the PVC source does not belong to the right APIGroup. Expected snapshot.storage.k8s.io, Got ',
    ],
    [
      'an empty name of any kind (C-04)',
      of('UnsupportedKind', undefined, ''),
      'the PVC source not found for PVC my-pvc',
    ],
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

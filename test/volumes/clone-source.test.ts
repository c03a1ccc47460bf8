import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CLONE_PROTECTION } from '#src/kube/keys.ts';
import type { Claim, DataSourceRef, VolumeMode } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { aClass } from './builders.ts';
import {
  aCloningClaim,
  type ApiObjects,
  aReferringClaim,
  aSourceClaim,
  aSourceVolume,
  cloneObjects,
  type FillInput,
  type GrantChange,
  planSource,
  run,
  withGrant,
} from './source-builders.ts';

const PREFIX = 'error getting handle for DataSource Type PersistentVolumeClaim by Name fake-pvc: ';
const READS = [
  'read persistentvolumeclaims fake-pvc-namespace/fake-pvc',
  'read persistentvolumes test-testi',
];
const ADDS_FINALIZER = 'add-finalizer persistentvolumeclaims fake-pvc-namespace/fake-pvc';
const ON_SOURCE = {
  resource: 'persistentvolumeclaims',
  namespace: 'fake-pvc-namespace',
  name: 'fake-pvc',
  seen: '41',
};
const ON_VOLUME = { resource: 'persistentvolumes', name: 'test-testi', seen: '42' };
const INVALID = 'claim in dataSource not bound or invalid';

const cloned = (objects: ApiObjects = cloneObjects(), change: Partial<FillInput> = {}) =>
  run((api) => planSource(api, { claim: aCloningClaim(), ...change }), objects);
/** Asserts that the clone uses the volume's handle, and that the source gets our finalizer. */
const succeeds = async (objects?: ApiObjects, change?: Partial<FillInput>) => {
  const { value, error, steps } = await cloned(objects, change);
  assert.equal(error, undefined);
  assert.deepEqual(value?.request, {
    type: { case: 'volume', value: { volumeId: 'test-volume-id' } },
  });
  assert.deepEqual(steps, [...READS, ADDS_FINALIZER]);
};

interface Refusal {
  readonly objects?: ApiObjects;
  readonly change?: Partial<FillInput>;
  readonly message: string;
  readonly waitsFor: readonly object[];
}
const refuses = async ({ objects, change, message, waitsFor }: Refusal) => {
  const { error, steps } = await cloned(objects, change);
  assert.equal(error?.message, PREFIX + message);
  assert.deepEqual(error.waitsFor, waitsFor);
  assert.ok(!steps.includes(ADDS_FINALIZER), 'a refused source gets no finalizer');
};

const withSource = (change: Parameters<typeof aSourceClaim>[0]) =>
  cloneObjects(aSourceClaim(change));
const withVolume = (change: Parameters<typeof aSourceVolume>[0]) =>
  cloneObjects(aSourceClaim(), aSourceVolume(change));
const withoutClass = (claim: Claim): Claim => {
  const { storageClassName: _, ...spec } = claim.spec;
  return { ...claim, spec };
};
const unclaimed = () => {
  const { claimRef: _, ...spec } = aSourceVolume().spec;
  return cloneObjects(aSourceClaim(), { ...aSourceVolume(), spec });
};
const ref = { uid: 'fake-claim-uid', namespace: 'fake-pvc-namespace', name: 'fake-pvc' };
const invalid = (objects: ApiObjects): Refusal => ({
  objects,
  message: INVALID,
  waitsFor: [ON_VOLUME, ON_SOURCE],
});

const between = (wanted: VolumeMode | undefined, has: VolumeMode | undefined) => ({
  objects: withVolume(has === undefined ? {} : { spec: { volumeMode: has } }),
  change: { claim: aCloningClaim(wanted === undefined ? {} : { volumeMode: wanted }) },
});
const MODE_WORDS =
  'the source PVC and destination PVCs must have the same volume mode for cloning.  ';

describe('cloneSource', () => {
  it('uses the handle of the source’s volume, and adds our finalizer (D-01)', async () => {
    const { value, steps } = await cloned();
    assert.deepEqual(value, {
      request: { type: { case: 'volume', value: { volumeId: 'test-volume-id' } } },
      resource: claims,
      object: aSourceClaim(),
      finalizer: CLONE_PROTECTION,
    });
    assert.deepEqual(steps, [...READS, ADDS_FINALIZER]);
  });

  const BLOCK_WANTED = {
    message: `${MODE_WORDS}Source is Filesystem, but new PVC requested Block`,
    waitsFor: [ON_SOURCE],
  };
  const BLOCK_GIVEN = {
    message: `${MODE_WORDS}Source is Block, but new PVC requested Filesystem`,
    waitsFor: [ON_SOURCE],
  };
  const NOT_BOUND = 'the PVC DataSource fake-pvc must have a status of Bound.  Got';
  const refusals: Record<string, Refusal> = {
    'a claim smaller than its source (D-05)': {
      change: { requestedBytes: 999n },
      message:
        'error, new PVC request must be greater than or equal in size to the specified PVC ' +
        'data source, requested 999 but source is 1000',
      waitsFor: [ON_SOURCE],
    },
    'a source that does not exist (D-06)': {
      objects: [],
      message:
        'error getting PVC fake-pvc (namespace "fake-pvc-namespace") from api server: ' +
        'persistentvolumeclaim "fake-pvc" not found',
      waitsFor: [{ ...ON_SOURCE, seen: '' }],
    },
    'a source without a class (D-07)': {
      objects: cloneObjects(withoutClass(aSourceClaim())),
      message: 'the source PVC (fake-pvc) storageclass cannot be empty',
      waitsFor: [ON_SOURCE],
    },
    'a claim without a class (D-08)': {
      change: { claim: withoutClass(aCloningClaim()) },
      message: 'the requested PVC (my-pvc) storageclass cannot be empty',
      waitsFor: [],
    },
    'a source whose volume does not exist (D-09)': {
      objects: [[claims, aSourceClaim()]],
      message: INVALID,
      waitsFor: [{ ...ON_VOLUME, seen: '' }, ON_SOURCE],
    },
    'a source that is pending (D-10)': {
      objects: withSource({ phase: 'Pending' }),
      message: `${NOT_BOUND} Pending`,
      waitsFor: [ON_SOURCE],
    },
    'a source that lost its volume (D-11)': {
      objects: withSource({ phase: 'Lost' }),
      message: `${NOT_BOUND} Lost`,
      waitsFor: [ON_SOURCE],
    },
    'a source without a phase': {
      objects: cloneObjects({ metadata: aSourceClaim().metadata, spec: aSourceClaim().spec }),
      message: `${NOT_BOUND} no phase`,
      waitsFor: [ON_SOURCE],
    },
    'a source whose volume is Released (D-12)': invalid(withVolume({ phase: 'Released' })),
    'a source whose volume is Failed (D-13)': invalid(withVolume({ phase: 'Failed' })),
    'a source whose volume is Pending (D-14)': invalid(withVolume({ phase: 'Pending' })),
    'a source whose volume is Available (D-15)': invalid(withVolume({ phase: 'Available' })),
    'a source whose volume has no claimRef (D-16)': invalid(unclaimed()),
    'a volume of another UID (D-17)': invalid(
      withVolume({ spec: { claimRef: { ...ref, uid: 'other' } } }),
    ),
    'a volume of another namespace (D-18)': invalid(
      withVolume({ spec: { claimRef: { ...ref, namespace: 'other' } } }),
    ),
    'a volume of another claim (D-19)': invalid(
      withVolume({ spec: { claimRef: { ...ref, name: 'other' } } }),
    ),
    'a volume of another driver (D-20)': invalid(
      withVolume({ spec: { csi: { driver: 'other', volumeHandle: 'h' } } }),
    ),
    'a class whose provisioner is the in-tree name (R-41)': {
      change: { cls: aClass({ provisioner: 'kubernetes.io/aws-ebs' }) },
      message: INVALID,
      waitsFor: [ON_VOLUME, ON_SOURCE],
    },
    'a block volume from a file system (D-22)': {
      ...between('Block', 'Filesystem'),
      ...BLOCK_WANTED,
    },
    'a block volume from a volume without a mode (D-23)': {
      ...between('Block', undefined),
      ...BLOCK_WANTED,
    },
    'a file system from a block volume (D-26)': {
      ...between('Filesystem', 'Block'),
      ...BLOCK_GIVEN,
    },
    'a volume without a mode from a block volume': {
      ...between(undefined, 'Block'),
      ...BLOCK_GIVEN,
    },
    'a source that is being deleted': {
      objects: withSource({
        metadata: { deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [CLONE_PROTECTION] },
      }),
      message: 'the PVC DataSource fake-pvc is currently being deleted',
      waitsFor: [ON_SOURCE],
    },
    'a source that names no volume': {
      objects: withSource({ spec: { volumeName: '' } }),
      message: 'volume name is empty in source PVC fake-pvc',
      waitsFor: [ON_SOURCE],
    },
    'a source whose size is no quantity': {
      objects: withSource({ spec: { resources: { requests: { storage: 'much' } } } }),
      message:
        'PersistentVolumeClaim fake-pvc: spec.resources.requests.storage: "much" is not a ' +
        'quantity; write a number with an optional unit, like 5Gi, 500M or 1e9',
      waitsFor: [ON_SOURCE],
    },
  };
  for (const [title, refusal] of Object.entries(refusals))
    it(`refuses ${title}`, () => refuses(refusal));

  it('refuses a source whose volume is no CSI volume', async () => {
    const { csi: _, ...spec } = aSourceVolume().spec;
    await refuses(invalid(cloneObjects(aSourceClaim(), { ...aSourceVolume(), spec })));
  });

  it('refuses a source without a field for its volume', async () => {
    const { volumeName: _, ...spec } = aSourceClaim().spec;
    const message = 'volume name is empty in source PVC fake-pvc';
    await refuses({
      objects: cloneObjects({ ...aSourceClaim(), spec }),
      message,
      waitsFor: [ON_SOURCE],
    });
  });

  it('refuses a source whose volume has no phase', async () => {
    const { metadata, spec } = aSourceVolume();
    await refuses(invalid(cloneObjects(aSourceClaim(), { metadata, spec })));
  });

  it('keeps what is wrong with the volume as the error’s cause', async () => {
    const { error } = await cloned(withVolume({ phase: 'Released' }));
    const messages: string[] = [];
    for (let cause: unknown = error; cause instanceof Error; cause = cause.cause)
      messages.push(cause.message);
    assert.equal(messages.at(-1), 'volume test-testi is Released');
  });

  it('repeats the server’s message if the source may not be read', async () => {
    const { error } = await run(
      (api) => planSource(api, { claim: aCloningClaim() }),
      cloneObjects(),
      {
        verb: 'read',
        code: 403,
        message: 'forbidden',
      },
    );
    assert.equal(
      error?.message,
      `${PREFIX}error getting PVC fake-pvc (namespace "fake-pvc-namespace") from api server: ` +
        'forbidden',
    );
    assert.deepEqual(error.waitsFor, []);
  });

  it('names the claim’s namespace even if the source is in another one', async () => {
    const claim = aReferringClaim({ namespace: 'fake-pvc-namespace' });
    const { error } = await run(
      (api) => planSource(api, { claim, crossNamespace: true }),
      withGrant([], { namespace: 'fake-pvc-namespace' }),
    );
    assert.match(error?.message ?? '', /error getting PVC fake-pvc \(namespace "ns2"\)/);
    assert.deepEqual(error?.waitsFor, [{ ...ON_SOURCE, seen: '' }]);
  });

  it('accepts a source that requested no size', async () => {
    await succeeds(withSource({ spec: { resources: {} } }), { requestedBytes: 0n });
  });

  it('accepts a larger claim', () => succeeds(cloneObjects(), { requestedBytes: 1001n }));

  it('compares with the size that the source requested, not with its capacity', async () => {
    const source = aSourceClaim();
    await succeeds(
      cloneObjects({ ...source, status: { ...source.status, capacity: { storage: '5000' } } }),
    );
  });

  it('accepts another class than the source’s (D-03)', () =>
    succeeds(cloneObjects(), { claim: aCloningClaim({ storageClassName: 'other' }) }));

  const modes: Record<string, { objects: ApiObjects; change: Partial<FillInput> }> = {
    'a block volume from a block volume (D-21)': between('Block', 'Block'),
    'a volume without a mode from one without (D-24)': between(undefined, undefined),
    'a file system from a file system (D-25)': between('Filesystem', 'Filesystem'),
    'a file system from a volume without a mode (D-27)': between('Filesystem', undefined),
    'a volume without a mode from a file system': between(undefined, 'Filesystem'),
  };
  for (const [title, { objects, change }] of Object.entries(modes))
    it(`clones ${title}`, () => succeeds(objects, change));

  it('reports the first of several faults, in upstream’s order', async () => {
    const deleted = {
      metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' },
      spec: { volumeName: '' },
    };
    const small = { requestedBytes: 1n };
    await refuses({
      objects: withSource({ ...deleted, phase: 'Pending' }),
      change: small,
      message: `${NOT_BOUND} Pending`,
      waitsFor: [ON_SOURCE],
    });
    const message = 'the PVC DataSource fake-pvc is currently being deleted';
    await refuses({ objects: withSource(deleted), change: small, message, waitsFor: [ON_SOURCE] });
  });
});

describe('cloneSource across namespaces', () => {
  const NS = 'fake-pvc-namespace';
  const there = (ref: Partial<DataSourceRef> = {}) => aReferringClaim({ namespace: NS, ...ref });
  const reading = (claim: Claim, grant?: GrantChange, objects: ApiObjects = cloneObjects()) =>
    run(
      (api) => planSource(api, { claim, crossNamespace: true }),
      grant === undefined ? objects : withGrant(objects, { namespace: NS, ...grant }),
    );

  const granted: Record<
    string,
    [claim: Claim, grant?: GrantChange | undefined, objects?: ApiObjects]
  > = {
    'a plain dataSource with the feature gate on (D-28)': [aCloningClaim()],
    'into another class with the feature gate on (D-29)': [
      aCloningClaim({ storageClassName: 'other' }),
    ],
    'a file system with the feature gate on (D-30)': [
      aCloningClaim({ volumeMode: 'Filesystem' }),
      undefined,
      between('Filesystem', 'Filesystem').objects,
    ],
    'a volume without a mode with the feature gate on (D-31)': [
      aCloningClaim(),
      undefined,
      between(undefined, undefined).objects,
    ],
    'a claim that a grant names by kind (D-32)': [there({ apiGroup: '' }), {}],
    'a claim that a grant names (D-33)': [there({ apiGroup: '' }), { to: { name: 'fake-pvc' } }],
    "a dataSourceRef that names the claim's namespace (D-34)": [
      aReferringClaim({ namespace: NS }, { namespace: NS }),
    ],
    'a dataSourceRef without a namespace (D-35)': [aReferringClaim({}, { namespace: NS })],
    'a dataSourceRef whose namespace is null (D-36)': [
      aReferringClaim({ namespace: null as unknown as string }, { namespace: NS }),
    ],
    'a reference whose group is null (D-37)': [there({ apiGroup: null as unknown as string }), {}],
    'a reference without a group (D-38)': [there(), {}],
  };
  for (const [title, [claim, grant, objects]] of Object.entries(granted)) {
    it(`clones ${title}`, async () => {
      const { value, steps } = await reading(claim, grant, objects);
      assert.deepEqual(value?.request.type?.value, { volumeId: 'test-volume-id' });
      assert.deepEqual(steps.slice(-3), [...READS, ADDS_FINALIZER]);
    });
  }

  const kept: Record<string, GrantChange | undefined> = {
    'with a grant in another namespace (D-40)': { namespace: 'ns3' },
    'with a grant from another group (D-41)': { from: { group: 'wrong' } },
    'with a grant from another kind (D-42)': { from: { kind: 'Wrong' } },
    'with a grant from another namespace (D-43)': { from: { namespace: 'ns3' } },
    'with a grant to another group (D-44)': { to: { group: 'wrong' } },
    'with a grant to another kind (D-45)': { to: { kind: 'Wrong' } },
    'with a grant to another name (D-46)': { to: { name: 'other' } },
    'with a grant whose `from` and `to` are empty (D-47)': { from: null, to: null },
    'without any grant (D-48)': undefined,
  };
  for (const [title, grant] of Object.entries(kept)) {
    it(`reads no claim ${title}`, async () => {
      const { error, steps } = await reading(there(), grant);
      const refusal =
        'accessing fake-pvc-namespace/fake-pvc of PersistentVolumeClaim dataSource from ' +
        "ns2/my-pvc isn't allowed";
      assert.equal(error?.message, refusal);
      assert.deepEqual(steps, [`list referencegrants ${NS}`]);
    });
  }

  it('reads no object of a kind that the grant does not name (D-39)', async () => {
    const { error, steps } = await reading(there({ kind: 'WrongKind' }), {});
    assert.equal(
      error?.message,
      "accessing fake-pvc-namespace/fake-pvc of WrongKind dataSource from ns2/my-pvc isn't allowed",
    );
    assert.deepEqual(steps, [`list referencegrants ${NS}`]);
  });

  it('reads no claim without the feature gate, granted or not (D-49)', async () => {
    const { error, steps } = await run(
      (api) => planSource(api, { claim: there() }),
      withGrant(cloneObjects(), { namespace: NS }),
    );
    assert.equal(
      error?.message,
      'dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is ' +
        'disabled',
    );
    assert.deepEqual(steps, []);
  });
});

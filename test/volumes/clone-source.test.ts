import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CLONE_PROTECTION } from '#src/kube/keys.ts';
import type { Claim, DataSourceRef, VolumeMode } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { aClass } from './builders.ts';
import {
  aCloningClaim,
  aReferringClaim,
  aSourceClaim,
  aSourceVolume,
  cloneWorld,
  filled,
  granting,
  refusing,
  run,
  type FillInput,
  type GrantChange,
  type World,
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

const cloned = (world: World = cloneWorld(), change: Partial<FillInput> = {}) =>
  run(filled({ claim: aCloningClaim(), ...change }), world);
/** That the clone works, reads the volume's handle, and that the source is protected. */
const succeeds = (world?: World, change?: Partial<FillInput>) => {
  const { value, error, steps } = cloned(world, change);
  assert.equal(error, undefined);
  assert.deepEqual(value?.request, {
    type: { case: 'volume', value: { volumeId: 'test-volume-id' } },
  });
  assert.deepEqual(steps, [...READS, ADDS_FINALIZER]);
};

interface Refusal {
  readonly world?: World;
  readonly change?: Partial<FillInput>;
  readonly message: string;
  readonly waitsFor: readonly object[];
}
const refuses = ({ world, change, message, waitsFor }: Refusal) => {
  const { error, steps } = cloned(world, change);
  assert.equal(error?.message, PREFIX + message);
  assert.deepEqual(error.waitsFor, waitsFor);
  assert.ok(!steps.includes(ADDS_FINALIZER), 'a refused source gets no finalizer');
};

const withSource = (change: Parameters<typeof aSourceClaim>[0]) => cloneWorld(aSourceClaim(change));
const withVolume = (change: Parameters<typeof aSourceVolume>[0]) =>
  cloneWorld(aSourceClaim(), aSourceVolume(change));
const withoutClass = (claim: Claim): Claim => {
  const { storageClassName: _, ...spec } = claim.spec;
  return { ...claim, spec };
};
const unclaimed = () => {
  const { claimRef: _, ...spec } = aSourceVolume().spec;
  return cloneWorld(aSourceClaim(), { ...aSourceVolume(), spec });
};
const ref = { uid: 'fake-claim-uid', namespace: 'fake-pvc-namespace', name: 'fake-pvc' };
const invalid = (world: World): Refusal => ({
  world,
  message: INVALID,
  waitsFor: [ON_VOLUME, ON_SOURCE],
});

const between = (wanted: VolumeMode | undefined, has: VolumeMode | undefined) => ({
  world: withVolume(has === undefined ? {} : { spec: { volumeMode: has } }),
  change: { claim: aCloningClaim(wanted === undefined ? {} : { volumeMode: wanted }) },
});
const MODE_WORDS =
  'the source PVC and destination PVCs must have the same volume mode for cloning.  ';

describe('cloneSource', () => {
  it("asks for the handle of the source's volume, and protects the source (D-01)", () => {
    const { value, steps } = cloned();
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
        'error, new PVC request must be greater than or equal in size to the specified PVC data source, requested 999 but source is 1000',
      waitsFor: [ON_SOURCE],
    },
    'a source that is not there (D-06)': {
      world: [],
      message:
        'error getting PVC fake-pvc (namespace "fake-pvc-namespace") from api server: persistentvolumeclaim "fake-pvc" not found',
      waitsFor: [{ ...ON_SOURCE, seen: '' }],
    },
    'a source without a class (D-07)': {
      world: cloneWorld(withoutClass(aSourceClaim())),
      message: 'the source PVC (fake-pvc) storageclass cannot be empty',
      waitsFor: [ON_SOURCE],
    },
    'a claim without a class (D-08)': {
      change: { claim: withoutClass(aCloningClaim()) },
      message: 'the requested PVC (my-pvc) storageclass cannot be empty',
      waitsFor: [],
    },
    'a source whose volume is not there (D-09)': {
      world: [[claims, aSourceClaim()]],
      message: INVALID,
      waitsFor: [{ ...ON_VOLUME, seen: '' }, ON_SOURCE],
    },
    'a source that is pending (D-10)': {
      world: withSource({ phase: 'Pending' }),
      message: `${NOT_BOUND} Pending`,
      waitsFor: [ON_SOURCE],
    },
    'a source that lost its volume (D-11)': {
      world: withSource({ phase: 'Lost' }),
      message: `${NOT_BOUND} Lost`,
      waitsFor: [ON_SOURCE],
    },
    'a source without a phase': {
      world: cloneWorld({ metadata: aSourceClaim().metadata, spec: aSourceClaim().spec }),
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
      world: withSource({
        metadata: { deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [CLONE_PROTECTION] },
      }),
      message: 'the PVC DataSource fake-pvc is currently being deleted',
      waitsFor: [ON_SOURCE],
    },
    'a source that names no volume': {
      world: withSource({ spec: { volumeName: '' } }),
      message: 'volume name is empty in source PVC fake-pvc',
      waitsFor: [ON_SOURCE],
    },
    'a source whose size is no quantity': {
      world: withSource({ spec: { resources: { requests: { storage: 'much' } } } }),
      message:
        'PersistentVolumeClaim fake-pvc: spec.resources.requests.storage: "much" is not a quantity; write a number with an optional unit, like 5Gi, 500M or 1e9',
      waitsFor: [ON_SOURCE],
    },
  };
  for (const [title, refusal] of Object.entries(refusals))
    it(`refuses ${title}`, () => refuses(refusal));

  it('refuses a source whose volume is no CSI volume', () => {
    const { csi: _, ...spec } = aSourceVolume().spec;
    refuses(invalid(cloneWorld(aSourceClaim(), { ...aSourceVolume(), spec })));
  });

  it('refuses a source without a field for its volume', () => {
    const { volumeName: _, ...spec } = aSourceClaim().spec;
    const message = 'volume name is empty in source PVC fake-pvc';
    refuses({ world: cloneWorld({ ...aSourceClaim(), spec }), message, waitsFor: [ON_SOURCE] });
  });

  it('refuses a source whose volume has no phase', () => {
    const { metadata, spec } = aSourceVolume();
    refuses(invalid(cloneWorld(aSourceClaim(), { metadata, spec })));
  });

  it('keeps for the log what is wrong with the volume', () => {
    const { error } = cloned(withVolume({ phase: 'Released' }));
    const told: string[] = [];
    for (let cause: unknown = error; cause instanceof Error; cause = cause.cause)
      told.push(cause.message);
    assert.equal(told.at(-1), 'volume test-testi is Released');
  });

  it("says the server's words where the source is withheld", () => {
    const { error } = run(
      filled({ claim: aCloningClaim() }),
      cloneWorld(),
      refusing('read', 403, 'forbidden'),
    );
    assert.equal(
      error?.message,
      `${PREFIX}error getting PVC fake-pvc (namespace "fake-pvc-namespace") from api server: forbidden`,
    );
    assert.deepEqual(error.waitsFor, []);
  });

  it("names the claim's namespace also where the source is in another one", () => {
    const claim = aReferringClaim({ namespace: 'fake-pvc-namespace' });
    const { error } = run(
      filled({ claim, crossNamespace: true }),
      granting([], { namespace: 'fake-pvc-namespace' }),
    );
    assert.match(error?.message ?? '', /error getting PVC fake-pvc \(namespace "ns2"\)/);
    assert.deepEqual(error?.waitsFor, [{ ...ON_SOURCE, seen: '' }]);
  });

  it('takes a source that asked for no size', () => {
    succeeds(withSource({ spec: { resources: {} } }), { requestedBytes: 0n });
  });

  it('takes a larger claim', () => succeeds(cloneWorld(), { requestedBytes: 1001n }));

  it('compares with what the source asked for, not with what it got', () => {
    const source = aSourceClaim();
    succeeds(
      cloneWorld({ ...source, status: { ...source.status, capacity: { storage: '5000' } } }),
    );
  });

  it('takes another class than the source has (D-03)', () =>
    succeeds(cloneWorld(), { claim: aCloningClaim({ storageClassName: 'other' }) }));

  const modes: Record<string, { world: World; change: Partial<FillInput> }> = {
    'a block volume from a block volume (D-21)': between('Block', 'Block'),
    'a volume without a mode from one without (D-24)': between(undefined, undefined),
    'a file system from a file system (D-25)': between('Filesystem', 'Filesystem'),
    'a file system from a volume without a mode (D-27)': between('Filesystem', undefined),
    'a volume without a mode from a file system': between(undefined, 'Filesystem'),
  };
  for (const [title, { world, change }] of Object.entries(modes))
    it(`clones ${title}`, () => succeeds(world, change));

  it('finds the first fault in the given order', () => {
    const deleted = {
      metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' },
      spec: { volumeName: '' },
    };
    const small = { requestedBytes: 1n };
    refuses({
      world: withSource({ ...deleted, phase: 'Pending' }),
      change: small,
      message: `${NOT_BOUND} Pending`,
      waitsFor: [ON_SOURCE],
    });
    const message = 'the PVC DataSource fake-pvc is currently being deleted';
    refuses({ world: withSource(deleted), change: small, message, waitsFor: [ON_SOURCE] });
  });
});

describe('cloneSource over namespaces', () => {
  const NS = 'fake-pvc-namespace';
  const there = (ref: Partial<DataSourceRef> = {}) => aReferringClaim({ namespace: NS, ...ref });
  const reading = (claim: Claim, grant?: GrantChange, world: World = cloneWorld()) =>
    run(
      filled({ claim, crossNamespace: true }),
      grant === undefined ? world : granting(world, { namespace: NS, ...grant }),
    );

  const granted: Record<string, [claim: Claim, grant?: GrantChange | undefined, world?: World]> = {
    'a plain dataSource with the gate on (D-28)': [aCloningClaim()],
    'into another class with the gate on (D-29)': [aCloningClaim({ storageClassName: 'other' })],
    'a file system with the gate on (D-30)': [
      aCloningClaim({ volumeMode: 'Filesystem' }),
      undefined,
      between('Filesystem', 'Filesystem').world,
    ],
    'a volume without a mode with the gate on (D-31)': [
      aCloningClaim(),
      undefined,
      between(undefined, undefined).world,
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
  for (const [title, [claim, grant, world]] of Object.entries(granted)) {
    it(`clones ${title}`, () => {
      const { value, steps } = reading(claim, grant, world);
      assert.deepEqual(value?.request.type.value, { volumeId: 'test-volume-id' });
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
    'with a grant from nobody to nothing (D-47)': { from: null, to: null },
    'without any grant (D-48)': undefined,
  };
  for (const [title, grant] of Object.entries(kept)) {
    it(`reads no claim ${title}`, () => {
      const { error, steps } = reading(there(), grant);
      const refusal =
        "accessing fake-pvc-namespace/fake-pvc of PersistentVolumeClaim dataSource from ns2/my-pvc isn't allowed";
      assert.equal(error?.message, refusal);
      assert.deepEqual(steps, [`list referencegrants ${NS}`]);
    });
  }

  it('reads no object of another kind than the grant names (D-39)', () => {
    const { error, steps } = reading(there({ kind: 'WrongKind' }), {});
    assert.equal(
      error?.message,
      "accessing fake-pvc-namespace/fake-pvc of WrongKind dataSource from ns2/my-pvc isn't allowed",
    );
    assert.deepEqual(steps, [`list referencegrants ${NS}`]);
  });

  it('reads no claim with the gate off, granted or not (D-49)', () => {
    const { error, steps } = run(
      filled({ claim: there() }),
      granting(cloneWorld(), { namespace: NS }),
    );
    assert.equal(
      error?.message,
      'dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled',
    );
    assert.deepEqual(steps, []);
  });
});

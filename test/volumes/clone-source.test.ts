import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CLONE_PROTECTION } from '#src/kube/keys.ts';
import type { Claim, VolumeMode } from '#src/kube/objects.ts';
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
  planSource,
  run,
  withGrant,
} from './source-builders.ts';

const PREFIX = 'error getting handle for DataSource Type PersistentVolumeClaim by Name fake-pvc: ';
const NS = 'fake-pvc-namespace';
const READS = [`read persistentvolumeclaims ${NS}/fake-pvc`, 'read persistentvolumes test-testi'];
const ADDS_FINALIZER = `add-finalizer persistentvolumeclaims ${NS}/fake-pvc`;
const SOURCE = { resource: 'persistentvolumeclaims', namespace: NS, name: 'fake-pvc', seen: '41' };
const VOLUME = { resource: 'persistentvolumes', name: 'test-testi', seen: '42' };

const cloned = (objects: ApiObjects = cloneObjects(), change: Partial<FillInput> = {}) =>
  run((api) => planSource(api, { claim: aCloningClaim(), ...change }), objects);
/** Asserts that the clone uses the volume's handle, whatever the feature gate is. */
const succeeds = async (objects?: ApiObjects, change?: Partial<FillInput>) => {
  for (const crossNamespace of [false, true]) {
    const { value, error } = await cloned(objects, { crossNamespace, ...change });
    assert.equal(error, undefined);
    assert.deepEqual(value?.request.type?.value, { volumeId: 'test-volume-id' });
  }
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
/** A source whose volume lacks a field. */
const volumeWithout = (field: 'claimRef' | 'csi') => {
  const { [field]: _, ...spec } = aSourceVolume().spec;
  return cloneObjects(aSourceClaim(), { ...aSourceVolume(), spec });
};
const between = (wanted: VolumeMode | undefined, has: VolumeMode | undefined) => ({
  objects: withVolume(has === undefined ? {} : { spec: { volumeMode: has } }),
  change: { claim: aCloningClaim(wanted === undefined ? {} : { volumeMode: wanted }) },
});

describe('cloneSource', () => {
  it('uses the handle of the source’s volume, and adds our finalizer (D-01, D-28)', async () => {
    await succeeds();
    const { value, steps } = await cloned();
    assert.deepEqual(value, {
      request: { type: { case: 'volume', value: { volumeId: 'test-volume-id' } } },
      resource: claims,
      object: aSourceClaim(),
      finalizer: CLONE_PROTECTION,
    });
    assert.deepEqual(steps, [...READS, ADDS_FINALIZER]);
  });

  /** A refusal until the source claim changes. */
  const ofSource = (message: string, given: Partial<Refusal> = {}): Refusal => ({
    message,
    waitsFor: [SOURCE],
    ...given,
  });
  /** A refusal until the source's volume or the source changes. */
  const invalid = (objects: ApiObjects): Refusal => ({
    objects,
    message: 'claim in dataSource not bound or invalid',
    waitsFor: [VOLUME, SOURCE],
  });
  const boundTo = (change: object) => {
    const claimRef = { uid: 'fake-claim-uid', namespace: NS, name: 'fake-pvc', ...change };
    return invalid(withVolume({ spec: { claimRef } }));
  };
  const of = (driver: string) => withVolume({ spec: { csi: { driver, volumeHandle: 'h' } } });
  const otherMode = (has: string, wanted: string) =>
    'the source PVC and destination PVCs must have the same volume mode for cloning.  ' +
    `Source is ${has}, but new PVC requested ${wanted}`;
  const BLOCK_WANTED = otherMode('Filesystem', 'Block');
  const BLOCK_GIVEN = otherMode('Block', 'Filesystem');
  const notBound = (phase: string) =>
    `the PVC DataSource fake-pvc must have a status of Bound.  Got ${phase}`;
  const { volumeName: _, ...unnamedSpec } = aSourceClaim().spec;
  const unnamed = { ...aSourceClaim(), spec: unnamedSpec };
  const deleted = { deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [CLONE_PROTECTION] };
  const refusals: Record<string, Refusal> = {
    'a claim smaller than its source (D-05)': ofSource(
      'error, new PVC request must be greater than or equal in size to the specified PVC data ' +
        'source, requested 999 but source is 1000',
      { change: { requestedBytes: 999n } },
    ),
    'a source that does not exist (D-06)': {
      objects: [],
      message:
        `error getting PVC fake-pvc (namespace "${NS}") from api server: ` +
        'persistentvolumeclaim "fake-pvc" not found',
      waitsFor: [{ ...SOURCE, seen: '' }],
    },
    'a source without a class (D-07)': ofSource(
      'the source PVC (fake-pvc) storageclass cannot be empty',
      { objects: cloneObjects(withoutClass(aSourceClaim())) },
    ),
    'a claim without a class (D-08)': {
      change: { claim: withoutClass(aCloningClaim()) },
      message: 'the requested PVC (my-pvc) storageclass cannot be empty',
      waitsFor: [],
    },
    'a source whose volume does not exist (D-09)': {
      ...invalid([[claims, aSourceClaim()]]),
      waitsFor: [{ ...VOLUME, seen: '' }, SOURCE],
    },
    'a source that is pending (D-10)': ofSource(notBound('Pending'), {
      objects: withSource({ phase: 'Pending' }),
    }),
    'a source that lost its volume (D-11)': ofSource(notBound('Lost'), {
      objects: withSource({ phase: 'Lost' }),
    }),
    'a source without a phase': ofSource(notBound('no phase'), {
      objects: cloneObjects({ metadata: aSourceClaim().metadata, spec: aSourceClaim().spec }),
    }),
    'a source whose volume is Released (D-12)': invalid(withVolume({ phase: 'Released' })),
    'a source whose volume is Failed (D-13)': invalid(withVolume({ phase: 'Failed' })),
    'a source whose volume is Pending (D-14)': invalid(withVolume({ phase: 'Pending' })),
    'a source whose volume is Available (D-15)': invalid(withVolume({ phase: 'Available' })),
    'a source whose volume has no claimRef (D-16)': invalid(volumeWithout('claimRef')),
    'a source whose volume is no CSI volume': invalid(volumeWithout('csi')),
    'a volume of another UID (D-17)': boundTo({ uid: 'other' }),
    'a volume of another namespace (D-18)': boundTo({ namespace: 'other' }),
    'a volume of another claim (D-19)': boundTo({ name: 'other' }),
    'a volume of another driver (D-20)': invalid(of('other')),
    'a class whose provisioner is the in-tree name (R-41)': {
      ...invalid(cloneObjects()),
      change: { cls: aClass({ provisioner: 'kubernetes.io/aws-ebs' }) },
    },
    'a block volume from a file system (D-22)': ofSource(
      BLOCK_WANTED,
      between('Block', 'Filesystem'),
    ),
    'a block volume from one without a mode (D-23)': ofSource(
      BLOCK_WANTED,
      between('Block', undefined),
    ),
    'a file system from a block volume (D-26)': ofSource(
      BLOCK_GIVEN,
      between('Filesystem', 'Block'),
    ),
    'a source that is being deleted': ofSource(
      'the PVC DataSource fake-pvc is currently being deleted',
      { objects: withSource({ metadata: deleted }) },
    ),
    'a source that names no volume': ofSource('volume name is empty in source PVC fake-pvc', {
      objects: cloneObjects(unnamed),
    }),
    'a source whose size is no quantity': ofSource(
      'PersistentVolumeClaim fake-pvc: spec.resources.requests.storage: "much" is not a ' +
        'quantity; write a number with an optional unit, like 5Gi, 500M or 1e9',
      { objects: withSource({ spec: { resources: { requests: { storage: 'much' } } } }) },
    ),
  };
  for (const [title, refusal] of Object.entries(refusals))
    it(`refuses ${title}`, () => refuses(refusal));

  it('repeats the server’s message if the source may not be read', async () => {
    const refused = { verb: 'read', code: 403, message: 'forbidden' } as const;
    const { error } = await run(
      (api) => planSource(api, { claim: aCloningClaim() }),
      cloneObjects(),
      refused,
    );
    const text = `error getting PVC fake-pvc (namespace "${NS}") from api server: forbidden`;
    assert.equal(error?.message, PREFIX + text);
    assert.deepEqual(error.waitsFor, []);
  });

  it('names the claim’s namespace even if the source is in another one', async () => {
    const claim = aReferringClaim({ namespace: NS });
    const { error } = await run(
      (api) => planSource(api, { claim, crossNamespace: true }),
      withGrant([], { namespace: NS }),
    );
    assert.match(error?.message ?? '', /error getting PVC fake-pvc \(namespace "ns2"\)/);
    assert.deepEqual(error?.waitsFor, [{ ...SOURCE, seen: '' }]);
  });

  it('accepts a source that requested no size', () =>
    succeeds(withSource({ spec: { resources: {} } }), { requestedBytes: 0n }));

  it('compares with the size that the source requested, not with its capacity', async () => {
    const source = aSourceClaim();
    const status = { ...source.status, capacity: { storage: '5000' } };
    await succeeds(cloneObjects({ ...source, status }));
  });

  it('accepts another class than the source’s (D-03, D-29)', () =>
    succeeds(cloneObjects(), { claim: aCloningClaim({ storageClassName: 'other' }) }));

  const modes: Record<string, ReturnType<typeof between>> = {
    'a block volume from a block volume (D-21)': between('Block', 'Block'),
    'a volume without a mode from one without (D-24, D-31)': between(undefined, undefined),
    'a file system from a file system (D-25, D-30)': between('Filesystem', 'Filesystem'),
    'a file system from a volume without a mode (D-27)': between('Filesystem', undefined),
  };
  for (const [title, { objects, change }] of Object.entries(modes))
    it(`clones ${title}`, () => succeeds(objects, change));

  it('reports the first of several faults, in upstream’s order', async () => {
    const objects = withSource({ metadata: deleted, spec: { volumeName: '' }, phase: 'Pending' });
    await refuses(ofSource(notBound('Pending'), { objects, change: { requestedBytes: 1n } }));
  });
});

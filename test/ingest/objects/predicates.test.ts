import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  judgeClaimChange,
  judgeVolumeChange,
  claimNeed,
  volumeNeed,
  type PredicateDriver,
} from '#src/ingest/objects/predicates.ts';
import type { Claim, Class, Volume } from '#src/kube/objects.ts';
import { aClaim, aClass, aVolume, DRIVER } from '../../volumes/builders.ts';

const GA = 'volume.kubernetes.io/storage-provisioner';
const BETA = 'volume.beta.kubernetes.io/storage-provisioner';
const MIGRATED_TO = 'pv.kubernetes.io/migrated-to';
const NODE = 'volume.kubernetes.io/selected-node';
const IN_TREE = 'kubernetes.io/in-tree';
const CLONE_PROTECTION = 'provisioner.storage.kubernetes.io/cloning-protection';

const driver: PredicateDriver = {
  name: DRIVER,
  inTreeName: IN_TREE,
  controllerCapabilities: new Set(['CREATE_DELETE_VOLUME']),
};
const cloning: PredicateDriver = {
  ...driver,
  controllerCapabilities: new Set(['CREATE_DELETE_VOLUME', 'CLONE_VOLUME']),
};
const late = aClass({ volumeBindingMode: 'WaitForFirstConsumer' });

interface Case {
  readonly annotations?: Record<string, string>;
  readonly spec?: Partial<Claim['spec']>;
  /** null = the class is missing. */
  readonly cls?: Class | null;
  readonly hasVolume?: boolean;
}

function describeNeed({
  annotations = { [GA]: DRIVER },
  spec = {},
  cls = aClass(),
  hasVolume = false,
}: Case): string {
  const lookups = { classOf: () => cls ?? undefined, hasVolume: () => hasVolume };
  const need = claimNeed(aClaim({ metadata: { annotations }, spec }), driver, lookups);
  return need.kind === 'job' ? 'job' : need.reason;
}

describe('claimNeed', () => {
  const lookups = { classOf: () => aClass(), hasVolume: () => false };

  it('makes a job with the claim’s key and nothing else', () => {
    assert.deepEqual(claimNeed(aClaim(), driver, lookups), {
      kind: 'job',
      key: { kind: 'claim', uid: 'testid', namespace: 'space', name: 'claim' },
    });
  });

  it('makes none for a claim of another node', () => {
    const metadata = { annotations: { [GA]: DRIVER, [NODE]: 'b' } };
    const need = claimNeed(aClaim({ metadata }), { ...driver, ownNode: 'a' }, lookups);
    assert.equal(need.kind, 'ignore');
  });

  const accepted: Readonly<Record<string, Case>> = {
    'for the driver (P-46)': {},
    'for the in-tree name, migrated to the driver (P-04, P-47, P-55)': {
      annotations: { [GA]: IN_TREE, [MIGRATED_TO]: DRIVER },
    },
    'for the driver whose class has the in-tree name (P-04)': {
      cls: aClass({ provisioner: IN_TREE }),
    },
    'with WaitForFirstConsumer and a node, by the beta annotation (P-57)': {
      annotations: { [BETA]: DRIVER, [NODE]: 'n' },
      cls: late,
    },
    'with WaitForFirstConsumer and a node, by the GA annotation (P-58)': {
      annotations: { [GA]: DRIVER, [NODE]: 'n' },
      cls: late,
    },
    'whose class has no binding mode (R-40)': { cls: aClass() },
  };
  for (const [title, given] of Object.entries(accepted))
    it(`accepts a claim ${title}`, () => assert.equal(describeNeed(given), 'job'));

  const ignored: readonly [title: string, Case, reason: RegExp][] = [
    ['that names its volume (P-06, P-48)', { spec: { volumeName: 'pv' } }, /already names its vol/],
    ['without annotation and class (P-49)', { annotations: {}, cls: null }, /not annotated/],
    [
      'for another provisioner (P-01, P-50)',
      { annotations: { [GA]: 'other' } },
      /provisioner other/,
    ],
    [
      'for another one by the beta (P-51)',
      { annotations: { [BETA]: 'other' } },
      /provisioner other/,
    ],
    ['without annotation (P-52)', { annotations: {} }, /not annotated/],
    [
      'for another provisioner by the GA annotation, ours by the beta one (P-53)',
      { annotations: { [GA]: 'other', [BETA]: DRIVER } },
      /provisioner other/,
    ],
    [
      'for the in-tree name, not migrated (P-54)',
      { annotations: { [GA]: IN_TREE } },
      /for provisioner kubernetes.io\/in-tree/,
    ],
    [
      'for the in-tree name, migrated to another driver (P-54)',
      { annotations: { [GA]: IN_TREE, [MIGRATED_TO]: 'other' } },
      /for provisioner kubernetes.io\/in-tree/,
    ],
    [
      'for another provisioner, though annotated as migrated to the driver',
      { annotations: { [GA]: 'other', [MIGRATED_TO]: DRIVER } },
      /provisioner other/,
    ],
    ['with WaitForFirstConsumer and no node (P-56)', { cls: late }, /no node is selected/],
    [
      'with WaitForFirstConsumer and an empty node',
      { annotations: { [GA]: DRIVER, [NODE]: '' }, cls: late },
      /no node/,
    ],
    [
      'whose GA annotation is empty, ours by the beta one (R-03)',
      { annotations: { [GA]: '', [BETA]: DRIVER } },
      /for provisioner $/,
    ],
    [
      'whose class is missing, with that reason (P-07, R-04)',
      { cls: null },
      /^storageClass "class" not found$/,
    ],
    [
      'whose class belongs to another driver (R-05)',
      { cls: aClass({ provisioner: 'other' }) },
      /belongs to provisioner other/,
    ],
    ['whose volume exists (P-02, R-01)', { hasVolume: true }, /volume of the claim exists/],
  ];
  for (const [title, given, reason] of ignored)
    it(`ignores a claim ${title}`, () => assert.match(describeNeed(given), reason));

  const cloneSource = (change: Partial<Claim['metadata']>): Claim =>
    aClaim({
      metadata: { annotations: {}, finalizers: [CLONE_PROTECTION], ...change },
      spec: { volumeName: 'pv' },
    });
  const deleted = { deletionTimestamp: '2026-01-01T00:00:00Z' };

  it('accepts a clone source that is being deleted, for a driver that clones (K-07)', () => {
    assert.equal(claimNeed(cloneSource(deleted), cloning, lookups).kind, 'job');
    assert.equal(claimNeed(cloneSource(deleted), driver, lookups).kind, 'ignore');
  });

  it('ignores a clone source that is not being deleted (K-08)', () => {
    assert.equal(claimNeed(cloneSource({}), cloning, lookups).kind, 'ignore');
  });

  it('ignores a claim that is being deleted without our finalizer (K-06)', () => {
    const claim = cloneSource({ ...deleted, finalizers: ['kubernetes.io/pvc-protection'] });
    assert.equal(claimNeed(claim, cloning, lookups).kind, 'ignore');
  });

  it('ignores a claim of another driver, whatever finalizers it has', () => {
    const finalizers = [
      CLONE_PROTECTION,
      'sutler.dev/volume-record',
      'kubernetes.io/pvc-protection',
    ];
    for (const change of [{}, deleted])
      for (const spec of [{}, { volumeName: 'pv' }]) {
        const annotations = { [GA]: 'other', [NODE]: 'n' };
        const claim = aClaim({ metadata: { annotations, finalizers, ...change }, spec });
        assert.equal(claimNeed(claim, cloning, lookups).kind, 'ignore');
      }
  });
});

describe('judgeClaimChange', () => {
  const finalizers = [CLONE_PROTECTION];
  const deletionTimestamp = '2026-01-01T00:00:00Z';
  const onNode = { [GA]: DRIVER, [NODE]: 'n' };
  const edited = (change: Parameters<typeof aClaim>[0] = {}): Claim => {
    const claim = aClaim(change);
    return { ...claim, metadata: { ...claim.metadata, resourceVersion: 'next' } };
  };
  const needed: readonly [what: string, claim: Claim, verdict: string | undefined][] = [
    ['one now if it was edited', edited(), 'enqueueNow'],
    ['one now for a node', edited({ metadata: { annotations: onNode } }), 'enqueueNow'],
    ['none if only a finalizer was added', edited({ metadata: { finalizers } }), undefined],
    [
      'one now if a finalizer and the node were added',
      edited({ metadata: { finalizers, annotations: onNode } }),
      'enqueueNow',
    ],
    ['none if it was only listed again', aClaim(), undefined],
    ['none if it names its volume', edited({ spec: { volumeName: 'pv' } }), undefined],
    ['none if it is bound', { ...edited(), status: { phase: 'Bound' } }, undefined],
    ['one now if it is deleted', edited({ metadata: { deletionTimestamp } }), 'enqueueNow'],
  ];
  for (const [what, claim, verdict] of needed)
    it(`asks for ${what}`, () =>
      assert.equal(judgeClaimChange(claim, aClaim(), true, driver), verdict));

  it('asks for a job of a claim that needed no job before', () => {
    const before = aClaim({ metadata: { annotations: {} } });
    assert.equal(judgeClaimChange(aClaim(), before, false, driver), 'ensureQueued');
  });

  it('asks for one now if the volume controller asked for a volume before', () =>
    assert.equal(judgeClaimChange(aClaim(), aClaim(), false, driver), 'enqueueNow'));

  it('asks for one if a clone source is deleted and the driver clones', () => {
    const source = aClaim({ metadata: { finalizers } });
    const deleted = aClaim({ metadata: { finalizers, deletionTimestamp } });
    assert.equal(judgeClaimChange(deleted, source, true, cloning), 'ensureQueued');
  });
});

describe('judgeVolumeChange', () => {
  const released = aVolume();
  const edited = (change: Parameters<typeof aVolume>[0] = {}): Volume => {
    const volume = aVolume(change);
    return { ...volume, metadata: { ...volume.metadata, resourceVersion: 'next' } };
  };

  it('asks for a job now if a new policy changes what must be done', () => {
    const retained = edited({ spec: { persistentVolumeReclaimPolicy: 'Retain' } });
    assert.equal(judgeVolumeChange(retained, released, driver), 'enqueueNow');
  });

  it('asks for one now at other changes, such as an annotation that names a secret', () =>
    assert.equal(judgeVolumeChange(edited(), released, driver), 'enqueueNow'));

  it('promotes a delayed one if the deletion begins, or for a change after that', () => {
    const deleted = edited({ metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' } });
    assert.equal(judgeVolumeChange(deleted, released, driver), 'promote');
    const later = { ...deleted, metadata: { ...deleted.metadata, resourceVersion: 'later' } };
    assert.equal(judgeVolumeChange(later, deleted, driver), 'promote');
  });

  it('asks for none if the volume was only listed again', () =>
    assert.equal(judgeVolumeChange(aVolume(), released, driver), undefined));
});

describe('volumeNeed', () => {
  it('makes a job for a volume that should be deleted', () => {
    assert.deepEqual(volumeNeed(aVolume(), driver), {
      kind: 'job',
      key: {
        kind: 'volume',
        uid: 'volume-uid',
        namespace: '',
        name: 'test-testi',
        claimUid: 'testid',
      },
    });
  });
});

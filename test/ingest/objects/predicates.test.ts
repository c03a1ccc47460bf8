import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  judgeClaimChange,
  judgeVolumeChange,
  claimNeed,
  volumeNeed,
  type PredicateDriver,
} from '#src/ingest/objects/predicates.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { aClaim, aClass, aVolume, DRIVER } from '../../volumes/builders.ts';

const GA = 'volume.kubernetes.io/storage-provisioner';
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

  // test/volumes/eligibility.test.ts has all reasons.
  const migrated = { [GA]: IN_TREE, [MIGRATED_TO]: DRIVER };
  for (const [title, annotations, found, reason] of [
    ['makes one for the in-tree name, migrated to the driver (P-04)', migrated, {}, undefined],
    ['makes none for another provisioner', { [GA]: 'other' }, {}, /for provisioner other/],
    [
      'makes none if its volume exists (P-02, R-01)',
      { [GA]: DRIVER },
      { hasVolume: () => true },
      /volume of the claim exists/,
    ],
    [
      'makes none if its class is missing, and names it (P-07, R-04)',
      { [GA]: DRIVER },
      { classOf: () => undefined },
      /^storageClass "class" not found$/,
    ],
  ] as const)
    it(title, () => {
      const claim = aClaim({ metadata: { annotations } });
      const need = claimNeed(claim, driver, { ...lookups, ...found });
      if (reason === undefined) assert.equal(need.kind, 'job');
      else assert.match(need.kind === 'ignore' ? need.reason : '', reason);
    });

  const cloneSource = (change: Partial<Claim['metadata']>): Claim =>
    aClaim({
      metadata: { annotations: {}, finalizers: [CLONE_PROTECTION], ...change },
      spec: { volumeName: 'pv' },
    });
  const deleted = { deletionTimestamp: '2026-01-01T00:00:00Z' };

  const foreign = { ...deleted, finalizers: ['kubernetes.io/pvc-protection'] };
  for (const [title, change, of, kind] of [
    [
      'accepts a clone source that is being deleted, if the driver clones (K-07)',
      deleted,
      cloning,
      'job',
    ],
    ['ignores it for a driver that does not clone (K-07)', deleted, driver, 'ignore'],
    ['ignores a clone source that is not being deleted (K-08)', {}, cloning, 'ignore'],
    ['ignores a claim that is deleted without our finalizer (K-06)', foreign, cloning, 'ignore'],
  ] as const)
    it(title, () => assert.equal(claimNeed(cloneSource(change), of, lookups).kind, kind));

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

  it('asks for a job of a claim that needed none before: now, if the controller asked before', () => {
    const before = aClaim({ metadata: { annotations: {} } });
    assert.equal(judgeClaimChange(aClaim(), before, false, driver), 'ensureQueued');
    assert.equal(judgeClaimChange(aClaim(), aClaim(), false, driver), 'enqueueNow');
  });

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

  const retained = edited({ spec: { persistentVolumeReclaimPolicy: 'Retain' } });
  const deleted = edited({ metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' } });
  const later = { ...deleted, metadata: { ...deleted.metadata, resourceVersion: 'later' } };
  for (const [title, volume, before, verdict] of [
    [
      'asks for a job now if a new policy changes what must be done',
      retained,
      released,
      'enqueueNow',
    ],
    ['asks for one now at other changes, as of an annotation', edited(), released, 'enqueueNow'],
    ['promotes a delayed one if the deletion begins', deleted, released, 'promote'],
    ['promotes it for a change after that', later, deleted, 'promote'],
    ['asks for none if the volume was only listed again', aVolume(), released, undefined],
  ] as const)
    it(title, () => assert.equal(judgeVolumeChange(volume, before, driver), verdict));
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

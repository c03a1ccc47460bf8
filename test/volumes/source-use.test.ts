import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Claim } from '#src/kube/objects.ts';
import {
  isCloning,
  isTerminatingCloneSource,
  isPending,
  restoredSnapshot,
} from '#src/volumes/source-use.ts';
import { aClaim } from './builders.ts';

const GROUP = 'snapshot.storage.k8s.io';
const CLONE_PROTECTION = 'provisioner.storage.kubernetes.io/cloning-protection';
const inPhase = (claim: Claim, phase: 'Pending' | 'Bound' | 'Lost'): Claim => ({
  ...claim,
  status: { phase },
});

describe('restoredSnapshot', () => {
  const cases: Readonly<Record<string, readonly [Claim['spec'], string | undefined]>> = {
    'counts a VolumeSnapshot without group (L-09)': [
      { dataSource: { kind: 'VolumeSnapshot', name: 's' } },
      'space/s',
    ],
    'counts a reference to a VolumeSnapshot of its group (L-10)': [
      { dataSourceRef: { apiGroup: GROUP, kind: 'VolumeSnapshot', name: 's' } },
      'space/s',
    ],
    'counts no claim (L-11)': [
      { dataSource: { kind: 'PersistentVolumeClaim', name: 's' } },
      undefined,
    ],
    'counts nothing where there is no source (L-12)': [{}, undefined],
    'counts no VolumeSnapshot of another group (L-13)': [
      { dataSource: { apiGroup: 'example.com', kind: 'VolumeSnapshot', name: 's' } },
      undefined,
    ],
    'counts no reference to a VolumeSnapshot of another group (L-14)': [
      { dataSourceRef: { apiGroup: 'example.com', kind: 'VolumeSnapshot', name: 's' } },
      undefined,
    ],
    'looks in the namespace that the reference names (L-15)': [
      { dataSourceRef: { apiGroup: GROUP, kind: 'VolumeSnapshot', name: 's', namespace: 'other' } },
      'other/s',
    ],
    'takes an empty namespace for the claim’s own': [
      { dataSourceRef: { apiGroup: GROUP, kind: 'VolumeSnapshot', name: 's', namespace: '' } },
      'space/s',
    ],
    'looks at the reference where the source is none': [
      {
        dataSource: { kind: 'PersistentVolumeClaim', name: 'c' },
        dataSourceRef: { apiGroup: GROUP, kind: 'VolumeSnapshot', name: 's' },
      },
      'space/s',
    ],
  };
  for (const [title, [spec, wanted]] of Object.entries(cases))
    it(title, () => assert.equal(restoredSnapshot(aClaim({ spec })), wanted));
});

describe('isPending', () => {
  it('holds for a claim that waits, and for one that nobody has looked at', () => {
    assert.deepEqual([aClaim(), inPhase(aClaim(), 'Pending')].map(isPending), [true, true]);
    assert.deepEqual([inPhase(aClaim(), 'Bound'), inPhase(aClaim(), 'Lost')].map(isPending), [
      false,
      false,
    ]);
  });
});

describe('isCloning', () => {
  const clone = (source: Claim['spec']['dataSource']): Claim =>
    aClaim({ spec: source === undefined ? {} : { dataSource: source } });

  it('holds for a pending clone of that claim, whatever the group says', () => {
    for (const apiGroup of ['', 'example.com'])
      assert.ok(
        isCloning(
          inPhase(clone({ apiGroup, kind: 'PersistentVolumeClaim', name: 'src' }), 'Pending'),
          'src',
        ),
      );
  });

  it('does not hold for a clone that is there, of another claim, of a snapshot, or of nothing', () => {
    const source = { kind: 'PersistentVolumeClaim', name: 'src' };
    assert.ok(!isCloning(inPhase(clone(source), 'Bound'), 'src'));
    assert.ok(!isCloning(inPhase(clone(source), 'Pending'), 'other'));
    assert.ok(
      !isCloning(inPhase(clone({ kind: 'VolumeSnapshot', name: 'src' }), 'Pending'), 'src'),
    );
    assert.ok(!isCloning(inPhase(clone(undefined), 'Pending'), 'src'));
  });

  it('does not hold for a reference alone, as upstream has it', () => {
    const claim = aClaim({
      spec: { dataSourceRef: { kind: 'PersistentVolumeClaim', name: 'src', namespace: 'space' } },
    });
    assert.ok(!isCloning(inPhase(claim, 'Pending'), 'src'));
  });
});

describe('isTerminatingCloneSource', () => {
  const held = (metadata: Partial<Claim['metadata']>): boolean =>
    isTerminatingCloneSource(aClaim({ metadata }));

  it('holds for a claim that is being deleted and has our finalizer, and no other', () => {
    const deletionTimestamp = '2026-01-01T00:00:00Z';
    assert.ok(held({ deletionTimestamp, finalizers: ['other', CLONE_PROTECTION] }));
    assert.ok(!held({ deletionTimestamp, finalizers: ['other'] }));
    assert.ok(!held({ deletionTimestamp }));
    assert.ok(!held({ finalizers: [CLONE_PROTECTION] }));
  });
});

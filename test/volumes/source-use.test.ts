import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Claim } from '#src/kube/objects.ts';
import {
  isCloning,
  isPending,
  isTerminatingCloneSource,
  restoredSnapshot,
} from '#src/volumes/data-source.ts';
import { aClaim } from './builders.ts';

const GROUP = 'snapshot.storage.k8s.io';
const CLONE_PROTECTION = 'provisioner.storage.kubernetes.io/cloning-protection';
const inPhase = (claim: Claim, phase: 'Pending' | 'Bound' | 'Lost'): Claim => ({
  ...claim,
  status: { phase },
});

describe('restoredSnapshot', () => {
  const cases: Readonly<Record<string, readonly [Claim['spec'], string | undefined]>> = {
    'is a VolumeSnapshot without group (L-09)': [
      { dataSource: { kind: 'VolumeSnapshot', name: 's' } },
      'space/s',
    ],
    'is a dataSourceRef to a VolumeSnapshot of its group (L-10)': [
      { dataSourceRef: { apiGroup: GROUP, kind: 'VolumeSnapshot', name: 's' } },
      'space/s',
    ],
    'is no claim (L-11)': [{ dataSource: { kind: 'PersistentVolumeClaim', name: 's' } }, undefined],
    'is undefined without a source (L-12)': [{}, undefined],
    'is no VolumeSnapshot of another group (L-13)': [
      { dataSource: { apiGroup: 'example.com', kind: 'VolumeSnapshot', name: 's' } },
      undefined,
    ],
    'is no dataSourceRef to a VolumeSnapshot of another group (L-14)': [
      { dataSourceRef: { apiGroup: 'example.com', kind: 'VolumeSnapshot', name: 's' } },
      undefined,
    ],
    'has the namespace that dataSourceRef names (L-15)': [
      { dataSourceRef: { apiGroup: GROUP, kind: 'VolumeSnapshot', name: 's', namespace: 'other' } },
      'other/s',
    ],
    'has the claim’s namespace if dataSourceRef names an empty one': [
      { dataSourceRef: { apiGroup: GROUP, kind: 'VolumeSnapshot', name: 's', namespace: '' } },
      'space/s',
    ],
    'is that of dataSourceRef if dataSource is no snapshot': [
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
  it('is true for a Pending claim and for one without a phase', () => {
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

  it('is true for a pending clone of that claim, whatever the group', () => {
    for (const apiGroup of ['', 'example.com'])
      assert.ok(
        isCloning(
          inPhase(clone({ apiGroup, kind: 'PersistentVolumeClaim', name: 'src' }), 'Pending'),
          'src',
        ),
      );
  });

  it('is false for a bound clone, other sources, or none', () => {
    const source = { kind: 'PersistentVolumeClaim', name: 'src' };
    assert.ok(!isCloning(inPhase(clone(source), 'Bound'), 'src'));
    assert.ok(!isCloning(inPhase(clone(source), 'Pending'), 'other'));
    assert.ok(
      !isCloning(inPhase(clone({ kind: 'VolumeSnapshot', name: 'src' }), 'Pending'), 'src'),
    );
    assert.ok(!isCloning(inPhase(clone(undefined), 'Pending'), 'src'));
  });

  it('is false for dataSourceRef alone, as in upstream', () => {
    const claim = aClaim({
      spec: { dataSourceRef: { kind: 'PersistentVolumeClaim', name: 'src', namespace: 'space' } },
    });
    assert.ok(!isCloning(inPhase(claim, 'Pending'), 'src'));
  });
});

describe('isTerminatingCloneSource', () => {
  const isTerminating = (metadata: Partial<Claim['metadata']>): boolean =>
    isTerminatingCloneSource(aClaim({ metadata }));

  it('is true only for a claim that is being deleted and has our finalizer', () => {
    const deletionTimestamp = '2026-01-01T00:00:00Z';
    assert.ok(isTerminating({ deletionTimestamp, finalizers: ['other', CLONE_PROTECTION] }));
    assert.ok(!isTerminating({ deletionTimestamp, finalizers: ['other'] }));
    assert.ok(!isTerminating({ deletionTimestamp }));
    assert.ok(!isTerminating({ finalizers: [CLONE_PROTECTION] }));
  });
});

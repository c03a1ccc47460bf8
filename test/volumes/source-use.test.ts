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

const CLONE_PROTECTION = 'provisioner.storage.kubernetes.io/cloning-protection';
const inPhase = (phase: 'Pending' | 'Bound' | 'Lost', spec: Claim['spec'] = {}): Claim => ({
  ...aClaim({ spec }),
  status: { phase },
});
const claim = { kind: 'PersistentVolumeClaim', name: 'src' };

describe('restoredSnapshot', () => {
  const snapshot = { kind: 'VolumeSnapshot', name: 's' };
  const ours = { ...snapshot, apiGroup: 'snapshot.storage.k8s.io' };
  const foreign = { ...snapshot, apiGroup: 'example.com' };
  const cases: Readonly<Record<string, readonly [Claim['spec'], string | undefined]>> = {
    'is a VolumeSnapshot without group (L-09)': [{ dataSource: snapshot }, 'space/s'],
    'is a dataSourceRef to one of its group (L-10)': [{ dataSourceRef: ours }, 'space/s'],
    'is no claim (L-11)': [{ dataSource: claim }, undefined],
    'is undefined without a source (L-12)': [{}, undefined],
    'is no VolumeSnapshot of another group (L-13)': [{ dataSource: foreign }, undefined],
    'is no dataSourceRef to one of another group (L-14)': [{ dataSourceRef: foreign }, undefined],
    'has the namespace that dataSourceRef names (L-15)': [
      { dataSourceRef: { ...ours, namespace: 'other' } },
      'other/s',
    ],
    'has the claim’s namespace if dataSourceRef names an empty one': [
      { dataSourceRef: { ...ours, namespace: '' } },
      'space/s',
    ],
    'is that of dataSourceRef if dataSource is no snapshot': [
      { dataSource: claim, dataSourceRef: ours },
      'space/s',
    ],
  };
  for (const [title, [spec, wanted]] of Object.entries(cases))
    it(title, () => assert.equal(restoredSnapshot(aClaim({ spec })), wanted));
});

it('a claim is pending in that phase and without one', () => {
  const claims = [aClaim(), inPhase('Pending'), inPhase('Bound'), inPhase('Lost')];
  assert.deepEqual(claims.map(isPending), [true, true, false, false]);
});

describe('a claim is a clone', () => {
  const cases: Readonly<Record<string, readonly [Claim, boolean]>> = {
    'of that claim, whatever the group': [
      inPhase('Pending', { dataSource: { ...claim, apiGroup: 'example.com' } }),
      true,
    ],
    'no more once it is Bound': [inPhase('Bound', { dataSource: claim }), false],
    'not of another claim': [
      inPhase('Pending', { dataSource: { ...claim, name: 'other' } }),
      false,
    ],
    'not of a snapshot of that name': [
      inPhase('Pending', { dataSource: { ...claim, kind: 'VolumeSnapshot' } }),
      false,
    ],
    'not without a source': [inPhase('Pending'), false],
    'not by dataSourceRef alone, as in upstream': [
      inPhase('Pending', { dataSourceRef: { ...claim, namespace: 'space' } }),
      false,
    ],
  };
  for (const [title, [clone, expected]] of Object.entries(cases))
    it(title, () => assert.equal(isCloning(clone, 'src'), expected));
});

it('a clone’s source is terminating if it is being deleted and has our finalizer', () => {
  const isTerminating = (metadata: Partial<Claim['metadata']>): boolean =>
    isTerminatingCloneSource(aClaim({ metadata }));
  const deletionTimestamp = '2026-01-01T00:00:00Z';
  assert.ok(isTerminating({ deletionTimestamp, finalizers: ['other', CLONE_PROTECTION] }));
  assert.ok(!isTerminating({ deletionTimestamp, finalizers: ['other'] }));
  assert.ok(!isTerminating({ finalizers: [CLONE_PROTECTION] }));
});

import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { FollowedVersions } from '#src/ingest/objects/followed-versions.ts';
import { PendingClaimCache, type KeptChange } from '#src/ingest/objects/pending-claim-cache.ts';
import type { Claim } from '#src/kube/objects.ts';
import { silentLog } from '#src/runtime/log.ts';
import { aClaim } from '../../volumes/builders.ts';

describe('PendingClaimCache', () => {
  let changes: KeptChange<Claim>[];
  let kept: PendingClaimCache;
  const nothing = (): void => undefined;
  beforeEach(() => {
    changes = [];
    kept = new PendingClaimCache({
      followed: new FollowedVersions(nothing, nothing),
      onChange: (change) => changes.push(change),
      log: silentLog,
    });
  });
  const claim = (version: string, metadata: Partial<Claim['metadata']> = {}): Claim =>
    aClaim({ metadata: { resourceVersion: version, ...metadata } });
  const bound = (version: string, metadata: Partial<Claim['metadata']> = {}): Claim => ({
    ...aClaim({
      metadata: { resourceVersion: version, ...metadata },
      spec: { volumeName: 'pv' },
    }),
    status: { phase: 'Bound' },
  });
  const seen = () => changes.map(({ type, isModified }) => [type, isModified ?? false]);

  it('keeps a claim until it is bound, and reports its last state with that', () => {
    kept.put(claim('1'), 'added');
    assert.equal(kept.size, 1);
    kept.put(bound('2'), 'modified');
    assert.equal(kept.size, 0);
    assert.equal(changes.at(-1)?.previous?.metadata.resourceVersion, '1');
    kept.put(bound('3'), 'modified');
    assert.deepEqual(seen().at(-1), ['added', true], 'its state before is not known');
  });

  it('keeps a bound claim with a finalizer that a job removes', () => {
    const finalizers = ['provisioner.storage.kubernetes.io/cloning-protection'];
    kept.put(bound('1', { finalizers }), 'listed');
    assert.equal(kept.size, 0);
    kept.put(bound('2', { finalizers, deletionTimestamp: 'now' }), 'modified');
    kept.put(bound('3', { name: 'other', finalizers: ['sutler.dev/volume-record'] }), 'added');
    assert.equal(kept.size, 2);
  });

  it('reports nothing for a version that it has, as in a list', () => {
    for (const how of ['added', 'added', 'listed'] as const) kept.put(claim('1'), how);
    assert.equal(changes.length, 1);
  });

  it('drops what a list did not contain, and only that', () => {
    kept.put(claim('1'), 'added');
    kept.put(claim('2', { name: 'other' }), 'added');
    kept.beginList();
    kept.put(claim('2', { name: 'other' }), 'listed');
    kept.endList();
    assert.deepEqual([kept.size, kept.get('space/claim')], [1, undefined]);
    assert.deepEqual(seen().at(-1), ['deleted', false]);
  });

  it('skips what it can’t read', () => {
    for (const raw of [undefined, {}, { metadata: {} }, { metadata: { name: 'a' } }])
      kept.put(raw, 'listed');
    assert.deepEqual([kept.size, changes], [0, []]);
  });
});

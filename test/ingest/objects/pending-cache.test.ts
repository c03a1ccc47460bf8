import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { PendingCache, type PendingChange } from '#src/ingest/objects/pending-cache.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { aClaim } from '../../volumes/builders.ts';

describe('PendingCache', () => {
  let changes: PendingChange<Claim>[];
  let cache: PendingCache<Claim>;
  beforeEach(() => {
    changes = [];
    cache = new PendingCache<Claim>({
      resource: claims,
      transform(raw) {
        const claim = raw as Claim;
        assert.ok(claim.spec);
        return claim;
      },
      mayNeedJob: ({ spec }) => spec.volumeName === undefined,
      onChange: (change) => changes.push(change),
      log: silentLog,
    });
  });
  const claim = (version: string, metadata: Partial<Claim['metadata']> = {}): Claim =>
    aClaim({ metadata: { resourceVersion: version, ...metadata } });
  const bound = (version: string): Claim =>
    aClaim({ metadata: { resourceVersion: version }, spec: { volumeName: 'pv' } });
  const seen = () => changes.map(({ type, isModified }) => [type, isModified]);

  it('keeps an object as long as it may need a job, and reports its last state with that', () => {
    cache.put(claim('1'), 'added');
    assert.equal(cache.size, 1);
    cache.put(bound('2'), 'modified');
    assert.equal(cache.size, 0);
    assert.equal(changes.at(-1)?.previous?.metadata.resourceVersion, '1');
    cache.put(bound('3'), 'modified');
    assert.deepEqual(seen().at(-1), ['added', true], 'its state before is not known');
  });

  it('reports nothing for a version that it has, as in a list', () => {
    for (const how of ['added', 'added', 'listed'] as const) cache.put(claim('1'), how);
    assert.equal(changes.length, 1);
  });

  it('drops what a list did not contain, and only that', () => {
    cache.put(claim('1'), 'added');
    cache.put(claim('2', { name: 'other' }), 'added');
    cache.beginList();
    cache.put(claim('2', { name: 'other' }), 'listed');
    cache.endList();
    assert.deepEqual([cache.size, cache.get('space/claim')], [1, undefined]);
  });

  it('takes an object of the same name and another UID for a new one', () => {
    cache.put(claim('1'), 'added');
    cache.put(claim('2', { uid: 'next' }), 'modified');
    assert.equal(changes.at(-1)?.previous, undefined);
    assert.deepEqual(seen().at(-1), ['added', false]);
  });

  it('skips what it can’t read', () => {
    for (const raw of [undefined, {}, { metadata: {} }, { metadata: { name: 'a' } }])
      cache.put(raw, 'listed');
    assert.deepEqual([cache.size, changes], [0, []]);
  });
});

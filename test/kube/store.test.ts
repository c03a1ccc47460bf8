import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import type { Claim } from '#src/kube/objects.ts';
import { type Change, Store } from '#src/kube/reflector.ts';
import { claims } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { aClaim } from '../volumes/builders.ts';

describe('Store', () => {
  let changes: Change<Claim>[];
  let store: Store<Claim>;
  beforeEach(() => {
    changes = [];
    store = new Store<Claim>({
      resource: claims,
      transform(raw) {
        const claim = raw as Claim;
        assert.ok(claim.spec);
        return claim;
      },
      isKept: ({ spec }) => spec.volumeName === undefined,
      onChange: (change) => changes.push(change),
      log: silentLog,
    });
  });
  const claim = (version: string, metadata: Partial<Claim['metadata']> = {}): Claim =>
    aClaim({ metadata: { resourceVersion: version, ...metadata } });
  const bound = (version: string): Claim =>
    aClaim({ metadata: { resourceVersion: version }, spec: { volumeName: 'pv' } });
  const types = () => changes.map(({ type }) => type);

  it('keeps an object as long as it is wanted, and reports its last state with that', () => {
    store.put(claim('1'), 'added');
    assert.equal(store.size, 1);
    store.put(bound('2'), 'modified');
    assert.equal(store.size, 0);
    assert.equal(changes.at(-1)?.previous?.metadata.resourceVersion, '1');
    store.put(bound('3'), 'modified');
    assert.equal(types().at(-1), 'modified');
    assert.equal(changes.at(-1)?.previous, undefined, 'its state before is not known');
  });

  it('reports nothing for a version that it has, as in a list', () => {
    for (const how of ['added', 'added', 'listed'] as const) store.put(claim('1'), how);
    assert.equal(changes.length, 1);
  });

  it('drops what a list did not contain, and only that', () => {
    store.put(claim('1'), 'added');
    store.put(claim('2', { name: 'other' }), 'added');
    store.beginList();
    store.put(claim('2', { name: 'other' }), 'listed');
    store.endList();
    assert.deepEqual([store.size, store.get('space/claim')], [1, undefined]);
    assert.deepEqual(types(), ['added', 'added', 'deleted']);
  });

  it('takes an object of the same name and another UID for a new one', () => {
    store.put(claim('1'), 'added');
    store.put(claim('2', { uid: 'next' }), 'modified');
    assert.equal(changes.at(-1)?.previous, undefined);
    assert.deepEqual(types(), ['added', 'deleted', 'added']);
  });

  it('skips what it can’t read', () => {
    for (const raw of [undefined, {}, { metadata: {} }, { metadata: { name: 'a' } }])
      store.put(raw, 'listed');
    assert.deepEqual([store.size, changes], [0, []]);
  });
});

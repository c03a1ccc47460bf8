import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Lru } from '#src/kube/lru.ts';

describe('Lru', () => {
  it('drops the entry that was not used for the longest time', () => {
    const lru = new Lru<string, number>(2);
    lru.set('a', 1);
    lru.set('b', 2);
    lru.get('a');
    lru.set('c', 3);
    assert.deepEqual([lru.get('a'), lru.get('b'), lru.get('c'), lru.size], [1, undefined, 3, 2]);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { JsonObject } from '../../../sandbox/api/json-value.ts';
import { strategicPatch } from '../../../sandbox/api/patch/strategic-patch.ts';
import { schemaOf } from '../../../sandbox/api/schema/schemas.ts';

const claim = (target: JsonObject, patch: JsonObject) =>
  strategicPatch(schemaOf('PersistentVolumeClaim'), target, patch);
const pod = (target: JsonObject, patch: JsonObject) =>
  strategicPatch(schemaOf('Pod'), target, patch);

describe('strategicPatch', () => {
  it('merges a list of objects by its key', () => {
    const target = {
      status: {
        conditions: [
          { type: 'A', status: 'True' },
          { type: 'B', status: 'True' },
        ],
      },
    };
    const patch = {
      status: {
        conditions: [
          { type: 'B', status: 'False' },
          { type: 'C', status: 'True' },
        ],
      },
    };
    assert.deepEqual(claim(target, patch), {
      status: {
        conditions: [
          { type: 'A', status: 'True' },
          { type: 'B', status: 'False' },
          { type: 'C', status: 'True' },
        ],
      },
    });
  });

  it('deletes an item with $patch: delete', () => {
    const target = { status: { conditions: [{ type: 'A' }, { type: 'B' }] } };
    assert.deepEqual(claim(target, { status: { conditions: [{ type: 'A', $patch: 'delete' }] } }), {
      status: { conditions: [{ type: 'B' }] },
    });
  });

  it('replaces a list with $patch: replace', () => {
    const target = { status: { conditions: [{ type: 'A' }] } };
    const patch = { status: { conditions: [{ type: 'Z' }, { $patch: 'replace' }] } };
    assert.deepEqual(claim(target, patch), { status: { conditions: [{ type: 'Z' }] } });
  });

  it('replaces a list that has no merge key', () => {
    assert.deepEqual(
      claim({ spec: { accessModes: ['a', 'b'] } }, { spec: { accessModes: ['c'] } }),
      { spec: { accessModes: ['c'] } },
    );
  });

  it('adds finalizers to those that exist', () => {
    assert.deepEqual(
      claim({ metadata: { finalizers: ['a', 'b'] } }, { metadata: { finalizers: ['b', 'c'] } }),
      {
        metadata: { finalizers: ['a', 'b', 'c'] },
      },
    );
  });

  it('removes single finalizers and orders the rest', () => {
    const patch = {
      metadata: {
        '$deleteFromPrimitiveList/finalizers': ['b'],
        '$setElementOrder/finalizers': ['c', 'a'],
      },
    };
    assert.deepEqual(claim({ metadata: { finalizers: ['a', 'b', 'c'] } }, patch), {
      metadata: { finalizers: ['c', 'a'] },
    });
  });

  it('keeps an item that the order omits behind the item before it', () => {
    const target = { metadata: { finalizers: ['a', 'x', 'b'] } };
    const patch = {
      metadata: { '$setElementOrder/finalizers': ['b', 'a', 'c'], finalizers: ['c'] },
    };
    assert.deepEqual(claim(target, patch), { metadata: { finalizers: ['b', 'a', 'x', 'c'] } });
  });

  it('keeps only the retained members of an item with $retainKeys', () => {
    const target = { spec: { volumes: [{ name: 'v', emptyDir: {} }] } };
    const patch = {
      spec: {
        volumes: [
          {
            name: 'v',
            $retainKeys: ['name', 'persistentVolumeClaim'],
            persistentVolumeClaim: { claimName: 'c' },
          },
        ],
      },
    };
    assert.deepEqual(pod(target, patch), {
      spec: { volumes: [{ name: 'v', persistentVolumeClaim: { claimName: 'c' } }] },
    });
  });

  it('removes a member with null and replaces a map with $patch: replace', () => {
    const target = { metadata: { labels: { a: '1', b: '2' }, annotations: { x: '1' } } };
    const patch = { metadata: { labels: { a: null }, annotations: { $patch: 'replace', y: '2' } } };
    assert.deepEqual(claim(target, patch), {
      metadata: { labels: { b: '2' }, annotations: { y: '2' } },
    });
  });

  it('refuses an item without its merge key', () => {
    const target = { status: { conditions: [{ type: 'A' }] } };
    assert.throws(
      () => claim(target, { status: { conditions: [{ status: 'True' }] } }),
      /does not contain declared merge key: type/,
    );
  });

  it('writes no directive into the result and does not change the target', () => {
    const target = { metadata: { finalizers: ['a'] }, spec: {} };
    const before = JSON.stringify(target);
    const result = claim(target, {
      spec: { selector: { $patch: 'replace', matchLabels: { a: 'b' } } },
      metadata: { '$setElementOrder/finalizers': ['a'] },
    });
    assert.ok(!JSON.stringify(result).includes('$'));
    assert.equal(JSON.stringify(target), before);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Json } from '../../../sandbox/api/json-value.ts';
import { jsonPatch } from '../../../sandbox/api/patch/json-patch.ts';
import { mergePatch } from '../../../sandbox/api/patch/merge-patch.ts';

describe('jsonPatch', () => {
  const document = { a: { 'b/c': 1, list: ['x', 'y'] }, '~': 0 };
  for (const [what, patch, result] of [
    [
      'adds into a list',
      [{ op: 'add', path: '/a/list/1', value: 'z' }],
      { a: { 'b/c': 1, list: ['x', 'z', 'y'] }, '~': 0 },
    ],
    [
      'reads escapes',
      [
        { op: 'replace', path: '/a/b~1c', value: 2 },
        { op: 'remove', path: '/~0' },
      ],
      { a: { 'b/c': 2, list: ['x', 'y'] } },
    ],
    [
      'moves',
      [{ op: 'move', from: '/a/list', path: '/list' }],
      { a: { 'b/c': 1 }, '~': 0, list: ['x', 'y'] },
    ],
    [
      'copies',
      [{ op: 'copy', from: '/a/list/0', path: '/a/list/-' }],
      { a: { 'b/c': 1, list: ['x', 'y', 'x'] }, '~': 0 },
    ],
    ['replaces the document', [{ op: 'replace', path: '', value: { n: 1 } }], { n: 1 }],
    [
      'accepts a test of null for an absent member',
      [{ op: 'test', path: '/none', value: null }],
      document,
    ],
  ] as const) {
    it(what, () => assert.deepEqual(jsonPatch(document, patch as unknown as Json), result));
  }

  for (const [what, patch] of [
    ['a test that fails', [{ op: 'test', path: '/a/b~1c', value: 2 }]],
    ['the removal of what is absent', [{ op: 'remove', path: '/a/none' }]],
    ['an index beyond the end', [{ op: 'add', path: '/a/list/9', value: 1 }]],
    ['a parent that is absent', [{ op: 'add', path: '/x/y', value: 1 }]],
    ['an operation that does not exist', [{ op: 'increment', path: '/a' }]],
    ['a path without a slash', [{ op: 'add', path: 'a', value: 1 }]],
  ] as const) {
    it(`refuses ${what} with 422`, () =>
      assert.throws(() => jsonPatch(document, patch as unknown as Json), {
        failure: {
          code: 422,
          reason: 'Invalid',
          message: 'the server rejected our request due to an error in our request',
          details: {},
        },
      }));
  }

  it('does not change the document', () => {
    jsonPatch(document, [{ op: 'add', path: '/a/list/-', value: 'z' }]);
    assert.deepEqual(document.a.list, ['x', 'y']);
  });
});

describe('mergePatch', () => {
  it('sets, merges, removes and replaces lists', () => {
    assert.deepEqual(
      mergePatch({ a: { b: 1, c: 2 }, l: [1, 2], d: 1 }, { a: { b: null, e: 3 }, l: [3], d: null }),
      {
        a: { c: 2, e: 3 },
        l: [3],
      },
    );
  });

  it('writes no null into a new member', () =>
    assert.deepEqual(mergePatch({}, { a: { b: null, c: 1 } }), { a: { c: 1 } }));

  it('does not change a prototype', () => {
    const result = mergePatch({}, JSON.parse('{"__proto__":{"x":1}}') as Json);
    assert.equal(({} as { x?: number }).x, undefined);
    assert.equal(JSON.stringify(result), '{"__proto__":{"x":1}}');
  });
});

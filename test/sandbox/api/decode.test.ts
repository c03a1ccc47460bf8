import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DecodeError, decodeStruct } from '../../../sandbox/api/schema/decode.ts';
import { compileStructs } from '../../../sandbox/api/schema/struct.ts';
import type { JsonObject } from '../../../sandbox/api/json-value.ts';

const structs = compileStructs({
  Outer: {
    name: 'string',
    kept: 'string *',
    spec: 'Inner +',
    nothing: 'string null',
    sizes: 'quantity{}',
    data: 'bytes{}',
    at: 'micro',
  },
  Inner: {
    b: 'string',
    a: 'string',
    flag: 'bool',
    pointer: 'bool *',
    items: 'Item[]',
    loose: 'Loose',
  },
  Item: { key: 'string !' },
  Loose: { $: 'open', known: 'int' },
});

function decode(raw: JsonObject): { object: JsonObject; unknown: string[] } {
  const outer = structs.get('Outer');
  assert.ok(outer !== undefined);
  const unknown: string[] = [];
  return { object: decodeStruct(outer, raw, unknown), unknown };
}

describe('decodeStruct', () => {
  it('gives equal text for objects with members in another order', () => {
    const a = decode({ spec: { a: '1', b: '2' }, name: 'x', sizes: { z: '1', y: '2' } }).object;
    const b = decode({ sizes: { y: '2', z: '1' }, name: 'x', spec: { b: '2', a: '1' } }).object;
    assert.equal(JSON.stringify(a), JSON.stringify(b));
  });

  it('drops empty values except those of pointers', () => {
    const { object } = decode({
      name: '',
      kept: '',
      spec: { flag: false, pointer: false, items: [] },
      sizes: {},
    });
    assert.deepEqual(object, { kept: '', spec: { pointer: false }, nothing: null });
  });

  it('writes an absent struct that is marked with +', () =>
    assert.deepEqual(decode({}).object, { spec: {}, nothing: null }));

  it('reports every member that no field describes', () => {
    assert.deepEqual(decode({ zzz: 1, spec: { items: [{ key: 'a', more: 1 }], y: 2 } }).unknown, [
      'spec.items[0].more',
      'spec.y',
      'zzz',
    ]);
  });

  it('keeps unknown members of an open struct', () => {
    const { object, unknown } = decode({ spec: { loose: { known: 1, other: { deep: [1] } } } });
    assert.deepEqual(object['spec'], { loose: { known: 1, other: { deep: [1] } } });
    assert.deepEqual(unknown, []);
  });

  it('makes quantities canonical', () =>
    assert.deepEqual(decode({ sizes: { storage: '1.5Gi' } }).object['sizes'], {
      storage: '1536Mi',
    }));

  it('keeps a map key named __proto__ as an ordinary key', () => {
    const { object } = decode({ sizes: JSON.parse('{"__proto__":"1"}') as JsonObject });
    assert.equal(JSON.stringify(object['sizes']), '{"__proto__":"1"}');
  });

  for (const [what, raw, message] of [
    [
      'a number for a text',
      { name: 5 },
      /cannot unmarshal number into Go struct field Outer\.name of type string/,
    ],
    [
      'a text for a list',
      { spec: { items: 'x' } },
      /cannot unmarshal string into Go struct field Inner\.spec\.items of type \[\]Item/,
    ],
    [
      'a list for a map',
      { sizes: [] },
      /cannot unmarshal array into Go struct field Outer\.sizes of type map\[string\]quantity/,
    ],
    ['an invalid quantity', { sizes: { storage: 'big' } }, /quantities must match/],
    ['bytes that are no base64', { data: { a: '!!' } }, /illegal base64 data at input byte 0/],
    [
      'a micro time of three digits',
      { at: '2026-11-21T01:51:57.123Z' },
      /cannot parse "\.123Z" as "\.000000"/,
    ],
  ] as const) {
    it(`refuses ${what}`, () =>
      assert.throws(
        () => decode(raw as unknown as JsonObject),
        (error) => error instanceof DecodeError && message.test(error.message),
      ));
  }
});

describe('compileStructs', () => {
  it('refuses a table that names an unknown struct', () =>
    assert.throws(() => compileStructs({ A: { b: 'Nowhere' } }), /no struct named Nowhere/));
});

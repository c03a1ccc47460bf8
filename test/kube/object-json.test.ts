import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fc from 'fast-check';
import { JsonNesting, parseObject } from '#src/kube/object-json.ts';

/** A value without its members `managedFields` that are arrays or objects. */
function withoutManagedFields(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutManagedFields);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key, member]) => key !== 'managedFields' || Object(member) !== member)
      .map(([key, member]) => [key, withoutManagedFields(member)]),
  );
}

/** Texts that look like the member, and other hostile ones. */
const texts = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.constantFrom(
    'managedFields',
    '"managedFields":',
    '\\',
    '\\"',
    ',"managedFields":[',
    '{"',
    '}]',
  ),
);
const json = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    texts,
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.constantFrom(null, true, false, 0),
    fc.array(tie('value')),
    fc.dictionary(fc.oneof(texts, fc.constant('managedFields')), tie('value')),
  ),
})).value;

const jsonCopy = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

describe('parseObject', () => {
  it('reads any JSON as JSON.parse does, but for managedFields', () => {
    fc.assert(
      fc.property(json, fc.constantFrom(undefined, 1, '\t'), (value, space) => {
        const text = JSON.stringify(value, undefined, space);
        const parsed = parseObject(Buffer.from(text));
        // With blanks the member stays, which costs memory and nothing else.
        assert.deepEqual(withoutManagedFields(parsed), withoutManagedFields(jsonCopy(value)));
        if (space === undefined) assert.deepEqual(parsed, withoutManagedFields(jsonCopy(value)));
      }),
      { numRuns: 200 },
    );
  });

  it('leaves the member out wherever it stands, with blanks around it', () => {
    for (const text of [
      '{"managedFields":[{"a":"]"}],"b":1}',
      '{"managedFields":[] , "b":1}',
      '{"b":1,"managedFields":{"c":[]}}',
      '{"b":1 ,"managedFields":[ ] \n }',
    ])
      assert.deepEqual(parseObject(Buffer.from(text)), { b: 1 }, text);
    assert.deepEqual(parseObject(Buffer.from('{"managedFields":[]}')), {});
  });

  it('refuses what is not JSON', () => {
    for (const text of ['', '{', '{"managedFields":[', '{"managedFields":[]', 'x'])
      assert.equal(parseObject(Buffer.from(text)), undefined, text);
  });
});

describe('JsonNesting', () => {
  it('finds the end of an array or object wherever its text is split', () => {
    fc.assert(
      fc.property(fc.array(json), fc.nat(), (value, seed) => {
        const bytes = Buffer.from(`${JSON.stringify(value)}]}`);
        const end = bytes.length - 2;
        const at = seed % end;
        const nesting = new JsonNesting();
        const first = nesting.endOf(bytes.subarray(0, at), 0);
        assert.equal(first, -1);
        assert.equal(nesting.endOf(bytes.subarray(at), 0), end - at);
      }),
      { numRuns: 100 },
    );
  });
});

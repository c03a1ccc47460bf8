import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fc from 'fast-check';
import { parseObject, WatchDecoder, type WatchEvent } from '#src/kube/decoders.ts';
import { KubeError } from '#src/kube/kube-error.ts';

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
        const parsed = parseObject(text);
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
      assert.deepEqual(parseObject(text), { b: 1 }, text);
    assert.deepEqual(parseObject('{"managedFields":[]}'), {});
  });

  it('refuses what is not JSON', () => {
    for (const text of ['', '{', '{"managedFields":[', '{"managedFields":[]', 'x'])
      assert.equal(parseObject(text), undefined, text);
  });
});

function decodeEvents(chunks: readonly Buffer[]): WatchEvent[] {
  const events: WatchEvent[] = [];
  const decoder = new WatchDecoder('watch x', (event) => events.push(event));
  for (const chunk of chunks) decoder.push(chunk);
  return events;
}

describe('WatchDecoder', () => {
  const names = ['plain', 'größe', '日本語', '🚀🚀', 'a"b\\c', 'line\nbreak'];
  const wire = Buffer.from(
    names.map((name) => `${JSON.stringify({ type: 'ADDED', object: { name } })}\n`).join(''),
  );
  const expected = names.map((name) => ({ type: 'ADDED', object: { name } }));

  it('decodes the same events wherever the stream is split, also inside a character', () => {
    for (let size = 1; size <= wire.length; size++) {
      const chunks: Buffer[] = [];
      for (let at = 0; at < wire.length; at += size) chunks.push(wire.subarray(at, at + size));
      assert.deepEqual(decodeEvents(chunks), expected, `pieces of ${size} bytes`);
    }
  });

  it('skips empty lines and an unfinished one at the end', () => {
    assert.deepEqual(
      decodeEvents([Buffer.from('\n\n{"type":"BOOKMARK","object":{}}\n{"type":"ADD')]),
      [{ type: 'BOOKMARK', object: {} }],
    );
  });

  it('refuses other lines; the error quotes them unless they may contain a secret', () => {
    for (const line of [
      '<html>',
      '{"type":"OTHER","object":{}}',
      '{"type":"ADDED"}',
      '[]',
      'null',
      '{"type":"ADDED","object":{}',
    ]) {
      assert.throws(
        () => decodeEvents([Buffer.from(`${line}\n`)]),
        (error) =>
          error instanceof KubeError &&
          error.code === 0 &&
          error.reason === 'Undecodable' &&
          error.message.includes(line.startsWith('{') ? 'broken JSON' : line),
      );
    }
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fc from 'fast-check';
import {
  ListDecoder,
  type PageInfo,
  parseObject,
  WatchDecoder,
  type WatchEvent,
} from '#src/kube/decoders.ts';
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

function decodeList(chunks: readonly Buffer[]): { items: unknown[]; page: PageInfo } {
  const items: unknown[] = [];
  const decoder = new ListDecoder('list x', (item) => items.push(item));
  for (const chunk of chunks) decoder.push(chunk);
  return { items, page: decoder.end() };
}

function split(bytes: Buffer, sizes: readonly number[]): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0, i = 0; at < bytes.length; i += 1) {
    const size = sizes[i % sizes.length] ?? bytes.length;
    chunks.push(bytes.subarray(at, at + size));
    at += size;
  }
  return chunks;
}

const metadata = { resourceVersion: '7', continue: 'next' };

describe('ListDecoder', () => {
  it('cuts any list into its items, however it is split', () => {
    const items = fc.array(fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue()));
    const others = fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 3 });
    const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 });
    fc.assert(
      fc.property(items, others, sizes, fc.boolean(), (items, others, sizes, isFirst) => {
        const known = { metadata, items };
        const list = isFirst ? { ...known, ...others, ...known } : { ...others, ...known };
        const decoded = decodeList(split(Buffer.from(JSON.stringify(list)), sizes));
        assert.deepEqual(decoded.items, JSON.parse(JSON.stringify(items)));
        assert.deepEqual(decoded.page, { resourceVersion: '7', continueToken: 'next' });
      }),
      { numRuns: 200 },
    );
  });

  it('finds only the items of the list itself', () => {
    const list = {
      a: { items: [{ b: 1 }] },
      'x,"items":[': [{ c: 1 }],
      text: ',"items":[{"d":1}]',
      items: [{ items: [{ e: 1 }] }],
      metadata,
    };
    assert.deepEqual(decodeList([Buffer.from(JSON.stringify(list))]).items, list.items);
  });

  it('finds items whose name is written with escapes, or with blanks around it', () => {
    for (const text of [
      String.raw`{"metadata":{},"\u0069tems":[{"a":1}]}`,
      '{ "metadata" : {} ,\n "items" : [ {"a":1} ] }',
    ])
      assert.deepEqual(decodeList([Buffer.from(text)]), {
        items: [{ a: 1 }],
        page: { resourceVersion: '' },
      });
  });

  it('has no items where the server sends null or none', () => {
    for (const text of ['{"items":null,"metadata":{}}', '{"items":[]}', '{}'])
      assert.deepEqual(decodeList([Buffer.from(text)]).items, [], text);
  });

  it('refuses what is not a complete list', () => {
    for (const text of [
      '',
      '[]',
      '<html>',
      '{"items":[{"a":1}',
      '{"items":[{"a":}]}',
      '{"items":[',
    ])
      assert.throws(
        () => decodeList([Buffer.from(text)]),
        (error) => error instanceof KubeError && error.reason === 'Undecodable',
        text,
      );
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

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fc from 'fast-check';
import { KubeError } from '#src/kube/kube-error.ts';
import { ListDecoder, type PageInfo } from '#src/kube/list-decoder.ts';

function decode(chunks: readonly Buffer[]): { items: unknown[]; page: PageInfo } {
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
        const decoded = decode(split(Buffer.from(JSON.stringify(list)), sizes));
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
    assert.deepEqual(decode([Buffer.from(JSON.stringify(list))]).items, list.items);
  });

  it('finds items whose name is written with escapes, or with blanks around it', () => {
    for (const text of [
      String.raw`{"metadata":{},"\u0069tems":[{"a":1}]}`,
      '{ "metadata" : {} ,\n "items" : [ {"a":1} ] }',
    ])
      assert.deepEqual(decode([Buffer.from(text)]), {
        items: [{ a: 1 }],
        page: { resourceVersion: '' },
      });
  });

  it('has no items where the server sends null or none', () => {
    for (const text of ['{"items":null,"metadata":{}}', '{"items":[]}', '{}'])
      assert.deepEqual(decode([Buffer.from(text)]).items, [], text);
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
        () => decode([Buffer.from(text)]),
        (error) => error instanceof KubeError && error.reason === 'Undecodable',
        text,
      );
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fc from 'fast-check';
import { parseList } from '#src/kube/parse-list.ts';

const parse = (text: string) => parseList(Buffer.from(text));
/** Also with brackets, quotes, escapes and characters of several bytes. */
const object = fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue());

describe('parseList', () => {
  it('reads any list as JSON.parse does', () => {
    fc.assert(
      fc.property(fc.array(object), fc.constantFrom(undefined, 1, '\t'), (items, space) => {
        const metadata = { resourceVersion: '7', continue: '}],"items":[{' };
        const text = JSON.stringify({ kind: 'ClaimList', metadata, items }, undefined, space);
        assert.deepEqual(parse(text), JSON.parse(text));
      }),
      { numRuns: 200 },
    );
  });

  it('finds items before the metadata, by a name with escapes, and none', () => {
    const text = String.raw`{"\u0069tems":[{"a":[{}]},{}],"metadata":{"resourceVersion":"7"}}`;
    assert.deepEqual(parse(text), JSON.parse(text));
    for (const none of ['{"items":null}', '{"items":[]}', '{}'])
      assert.deepEqual(parse(none)?.items, [], none);
  });

  it('refuses what is not a JSON object', () => {
    for (const text of ['', '[]', '1', '{"items":[{"a":1}', '{"items":[{"a":}]}', '<html>'])
      assert.equal(parse(text), undefined, text);
  });
});

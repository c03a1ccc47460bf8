import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { findToken, parseTokens } from '#src/webhooks/sender-secrets.ts';

const TOKENS = parseTokens('first-token-0123456789 knative\nsecond-token-012345678\n');

describe('bearer tokens', () => {
  it('name their sender', () =>
    assert.deepEqual(findToken('Bearer first-token-0123456789', TOKENS), {
      kind: 'token',
      name: 'knative',
    }));

  it('name a sender without a name by their digest', () =>
    assert.match(findToken('bearer  second-token-012345678', TOKENS)?.name ?? '', /^[0-9a-f]{8}$/));

  it('may be the password of a URL, which a sender without headers sends as Basic', () => {
    const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;
    for (const user of ['knative', '', 'any'])
      assert.equal(findToken(basic(`${user}:first-token-0123456789`), TOKENS)?.name, 'knative');
    for (const wrong of ['first-token-0123456789:', 'first-token-0123456789', 'a:b', ':', ''])
      assert.equal(findToken(basic(wrong), TOKENS), undefined, wrong);
  });

  it('must match completely', () => {
    for (const header of [
      '',
      'Bearer ',
      'Bearer first-token-012345678',
      'Bearer first-token-01234567890',
      'Bearer First-token-0123456789',
      'Basic first-token-0123456789',
      'Bearer first-token-0123456789 x',
    ])
      assert.equal(findToken(header, TOKENS), undefined, header);
  });

  it('are refused if they can be guessed', () =>
    assert.throws(() => parseTokens('good-token-0123456789\nshort'), /line 2: .*16 characters/));

  it('are a thousand at most', () =>
    assert.throws(
      () =>
        parseTokens(Array.from({ length: 1_001 }, (_, n) => `token-0123456789-${n}`).join('\n')),
      /1000 lines/,
    ));
});

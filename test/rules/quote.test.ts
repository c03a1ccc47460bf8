import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { quote } from '#src/rules/quote.ts';

/** The results of Go's strconv.Quote. */
const PRINTED: readonly (readonly [what: string, text: string, printed: string])[] = [
  ['plain words', 'a b', String.raw`"a b"`],
  ['quotes and backslashes', 'quo"te\\', String.raw`"quo\"te\\"`],
  ['control characters with an escape letter', '\u0007\b\f\n\r\t\v', String.raw`"\a\b\f\n\r\t\v"`],
  ['other control characters', '\u0000\u001b\u007f', String.raw`"\x00\x1b\x7f"`],
  [
    'spaces other than the plain one',
    '\u0085\u00a0\u200b\u2028',
    String.raw`"\u0085\u00a0\u200b\u2028"`,
  ],
  ['an invisible character beyond 16 bits', '\u{e0001}', String.raw`"\U000e0001"`],
  ['letters and symbols of any script unescaped', 'é – 語 😀', '"é – 語 😀"'],
];

describe('quote', () => {
  for (const [what, text, printed] of PRINTED)
    it(`quotes ${what}`, () => assert.equal(quote(text), printed));
});

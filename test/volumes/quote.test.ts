import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { quote } from '#src/volumes/quote.ts';

/** As Go's strconv.Quote prints them. */
const PRINTED: readonly (readonly [what: string, text: string, printed: string])[] = [
  ['plain words', 'a b', String.raw`"a b"`],
  ['quotes and backslashes', 'quo"te\\', String.raw`"quo\"te\\"`],
  ['what has a letter of its own', '\u0007\b\f\n\r\t\v', String.raw`"\a\b\f\n\r\t\v"`],
  ['other control characters', '\u0000\u001b\u007f', String.raw`"\x00\x1b\x7f"`],
  ['spaces that are not plain', '\u0085\u00a0\u200b\u2028', String.raw`"\u0085\u00a0\u200b\u2028"`],
  ['what lies far out and can’t be seen', '\u{e0001}', String.raw`"\U000e0001"`],
  ['letters and symbols of any script as they are', 'é – 語 😀', '"é – 語 😀"'],
];

describe('a quote text', () => {
  for (const [what, text, printed] of PRINTED)
    it(`has ${what}`, () => assert.equal(quote(text), printed));
});

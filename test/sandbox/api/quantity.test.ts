import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { canonicalQuantity, compareQuantities } from '../../../sandbox/api/quantity.ts';

describe('canonicalQuantity', () => {
  // The answers of a real API server.
  for (const [text, stored] of [
    ['1.5Gi', '1536Mi'],
    ['1000000000', '1G'],
    ['1Gi', '1Gi'],
    ['1024', '1024'],
    ['1024Ki', '1Mi'],
    ['0.5', '500m'],
    ['0', '0'],
    ['0Gi', '0'],
    ['1e3', '1e3'],
    ['-1Gi', '-1Gi'],
    ['1500', '1500'],
    ['5000', '5k'],
    ['.5Gi', '512Mi'],
  ] as const) {
    it(`stores ${text} as ${stored}`, () => assert.equal(canonicalQuantity(text), stored));
  }

  for (const text of ['', 'abc', '1 Gi', '1gi', 'Gi', '1.2.3', '0x10', 'Infinity', '1e', '.']) {
    it(`rejects ${JSON.stringify(text)}`, () => assert.equal(canonicalQuantity(text), undefined));
  }
});

describe('compareQuantities', () => {
  it('compares across suffixes', () => {
    assert.ok(compareQuantities('1Gi', '1G') > 0);
    assert.ok(compareQuantities('1000Mi', '1Gi') < 0);
    assert.equal(compareQuantities('1024Mi', '1Gi'), 0);
  });

  it('is exact for values that a number can’t represent', () =>
    assert.ok(compareQuantities('9007199254740993', '9007199254740992') > 0));
});

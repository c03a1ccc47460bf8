import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { formatBytes, parseQuantityBytes, QuantityError } from '#src/kube/quantity.ts';
import { seeded } from '../harness/seeded.ts';

describe('parseQuantityBytes', () => {
  const cases = `
    0=0 1=1 +5=5 -5=-5 00012=12 9007199254740993=9007199254740993
    1k=1000 1M=1000000 1G=1000000000 1T=1000000000000 1P=1000000000000000 1E=1000000000000000000
    1Ki=1024 1Mi=1048576 1Gi=1073741824 1Ti=1099511627776 1Pi=1125899906842624
    1Ei=1152921504606846976 1.5Gi=1610612736 0.5Gi=536870912 .5Gi=536870912 5.Gi=5368709120
    1.5G=1500000000 1e3=1000 1E3=1000 1e+3=1000 12e-1=2 1500m=2 1000m=1 1u=1 1n=1 -1n=-1
    -1500m=-2 0.1=1 0n=0 8796093022208.000000001Ki=9007199254740993`;
  for (const [, text = '', bytes = ''] of cases.matchAll(/(\S+)=(\S+)/g))
    it(`reads ${text} as ${bytes}`, () => assert.equal(parseQuantityBytes(text), BigInt(bytes)));

  it('caps at 2^63-1, as the API server does', () => {
    for (const text of ['8Ei', '10E', '1e99', '1e999999999999', '99999999999999999999'])
      assert.equal(parseQuantityBytes(text), 2n ** 63n - 1n, text);
    assert.equal(parseQuantityBytes('-1e99'), -(2n ** 63n - 1n));
    assert.equal(parseQuantityBytes('9223372036854775807'), 2n ** 63n - 1n);
    assert.equal(parseQuantityBytes('9223372036854775808'), 2n ** 63n - 1n);
  });

  it('returns at once for exponents that are too large to compute', () => {
    assert.equal(parseQuantityBytes('1e-999999999999'), 1n);
    assert.equal(parseQuantityBytes('0e999999999999'), 0n);
  });

  const refused =
    '| |1 Gi| 1|1 |Gi|.|+|-|1.2.3|1KI|1ki|1K|1g|1e|1e1.5|0x10|Infinity|NaN|1,5Gi|--1|1Gi\n|١';
  for (const text of refused.split('|')) {
    it(`refuses ${JSON.stringify(text)}, naming it`, () => {
      assert.throws(
        () => parseQuantityBytes(text),
        (error) => error instanceof QuantityError && error.message.includes(`"${text}"`),
      );
    });
  }
});

describe('formatBytes', () => {
  for (const [what, bytes, text] of [
    ['5.56 Gi, which is not a whole number of Mi, as plain bytes (A-12)', 5970004541n],
    ['5.5 Gi as 5632Mi (A-13)', 11n << 29n, '5632Mi'],
    ['5 Gi as 5Gi (A-14)', 5n << 30n, '5Gi'],
    ['5.23 Mi as plain bytes (A-15)', 5484052n],
    ['102400 as 100Ki (A-16)', 102400n, '100Ki'],
    ['1000 as 1k (R-18)', 1000n, '1k'],
    ['1023 as it is (R-18)', 1023n],
    ['1024 as 1Ki (R-18)', 1024n, '1Ki'],
    ['1024 Ei in Ei', 1024n ** 7n, '1024Ei'],
    ['-1000 in decimal too', -1000n, '-1k'],
    ['0 as it is', 0n],
  ] as const)
    it(`prints ${what}`, () => assert.equal(formatBytes(bytes), text ?? String(bytes)));

  it('prints what is read as the same size, for 2,000 sizes', () => {
    const random = seeded(20261120);
    for (let i = 0; i < 2_000; i++) {
      const bytes = BigInt(Math.floor(random() * 2 ** 52)) << BigInt(Math.floor(random() * 11));
      assert.equal(parseQuantityBytes(formatBytes(bytes)), bytes);
    }
  });
});

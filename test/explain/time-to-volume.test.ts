import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { describeTimes, quantiles, usualTimes } from '#src/explain/time-to-volume.ts';

const took = (times: readonly number[]) =>
  times.map((tookMs) => ({ className: 'gold', atMs: 0, tookMs, runs: 1 }));

describe('the time to a volume', () => {
  it('is that of half of the claims, and of 99 % of them', () => {
    const hundred = Array.from({ length: 100 }, (_, i) => 100 - i);
    assert.deepEqual(quantiles(took(hundred)), [50, 99]);
    assert.deepEqual(quantiles(took([7])), [7, 7]);
    assert.equal(quantiles([]), undefined);
  });

  it('is told in seconds of two digits, and not at all without a claim', () => {
    assert.equal(
      describeTimes(took([254, 1_234, 120_400])),
      'half of the last 3 had a volume within 1.2 s, 99 % within 120 s',
    );
    assert.equal(describeTimes([]), '');
  });

  it('that is usual for a class is that of its claims that needed one run', () => {
    const [fast, slow, silver] = took([1_000, 60_000, 2_000]);
    assert.ok(fast && slow && silver);
    const all = [fast, { ...slow, runs: 2 }, { ...silver, className: 'silver' }];
    assert.equal(
      usualTimes(all, 'gold'),
      'half of the last 1 that took one run had a volume within 1 s, 99 % within 1 s',
    );
    assert.equal(usualTimes(all, 'bronze'), '');
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { TokenBucket } from '#src/runtime/token-bucket.ts';

describe('TokenBucket', () => {
  it('refills with time, up to the burst', () => {
    const bucket = new TokenBucket({ burst: 2, perSecond: 10, nowMs: 0 });
    assert.deepEqual([bucket.take(0), bucket.take(0), bucket.take(0)], [true, true, false]);
    assert.equal(bucket.waitMs(0), 100);
    assert.equal(bucket.take(99), false);
    assert.equal(bucket.take(100), true);
    assert.deepEqual(
      [bucket.take(100_000), bucket.take(100_000), bucket.take(100_000)],
      [true, true, false],
    );
  });

  it('tolerates a clock that is set back', () => {
    const bucket = new TokenBucket({ burst: 1, perSecond: 1, nowMs: 1_000_000 });
    assert.equal(bucket.take(0), true);
    assert.equal(bucket.take(1000), true);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { TokenBucket } from '#src/runtime/token-bucket.ts';

/** @returns whether it had a token */
function take(bucket: TokenBucket, nowMs: number): boolean {
  if (bucket.waitMs(nowMs) > 0) return false;
  bucket.take(nowMs);
  return true;
}

describe('TokenBucket', () => {
  it('refills with time, up to the burst', () => {
    const bucket = new TokenBucket({ burst: 2, perSecond: 10, nowMs: 0 });
    assert.deepEqual([take(bucket, 0), take(bucket, 0), take(bucket, 0)], [true, true, false]);
    assert.equal(bucket.waitMs(0), 100);
    assert.equal(take(bucket, 99), false);
    assert.equal(take(bucket, 100), true);
    assert.deepEqual(
      [take(bucket, 100_000), take(bucket, 100_000), take(bucket, 100_000)],
      [true, true, false],
    );
  });
});

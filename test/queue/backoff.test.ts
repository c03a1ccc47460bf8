import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import { pollDelayMs, retryDelayMs } from '#src/queue/backoff.ts';

const backoff = { startMs: 1000, maxMs: 300_000 };

describe('retryDelayMs', () => {
  it('doubles its ceiling from start to max', () => {
    const ceilings = [1, 2, 3, 4, 9, 10, 30, 1100].map((attempt) =>
      retryDelayMs(attempt, backoff, 1),
    );
    assert.deepEqual(ceilings, [1000, 2000, 4000, 8000, 256_000, 300_000, 300_000, 300_000]);
  });

  it('spreads over the whole span below the ceiling', () => {
    assert.equal(retryDelayMs(4, backoff, 0), 1);
    assert.equal(retryDelayMs(4, backoff, 0.5), 4000);
  });

  it('is never shorter than the least that is asked for', () => {
    assert.equal(retryDelayMs(1, backoff, 0, 300_000), 300_000);
    assert.equal(retryDelayMs(10, backoff, 1, 5), 300_000);
  });

  it('returns a whole number of 1 or more whatever it is given', () => {
    const odd = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -1, 0, 0.3, 1e308];
    for (const attempt of odd) {
      for (const random of odd) {
        for (const startMs of odd) {
          for (const delay of [
            retryDelayMs(attempt, { startMs, maxMs: startMs }, random, startMs),
            pollDelayMs(attempt, { startMs, maxMs: startMs }, random),
          ]) {
            assert.ok(
              Number.isInteger(delay) && delay >= 1 && delay < 2 ** 31,
              `${attempt} ${random} ${startMs} gives ${delay}`,
            );
          }
        }
      }
    }
  });
});

describe('pollDelayMs', () => {
  it('grows as a retry does and stays in the upper half', () => {
    const poll = { startMs: 1000, maxMs: 30_000 };
    assert.deepEqual(
      [1, 2, 6, 20].map((attempt) => pollDelayMs(attempt, poll, 0)),
      [500, 1000, 15_000, 15_000],
    );
    assert.deepEqual(
      [1, 2, 6, 20].map((attempt) => pollDelayMs(attempt, poll, 1)),
      [1000, 2000, 30_000, 30_000],
    );
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { signalWithin, systemClock, timerMs } from '#src/runtime/clock.ts';

const LONGEST_MS = 2_147_483_647;

describe('timerMs', () => {
  it('does not change a delay that a timer can wait for', () => {
    assert.deepEqual([0, 0.5, 300_000, LONGEST_MS].map(timerMs), [0, 0.5, 300_000, LONGEST_MS]);
  });

  it('limits a longer delay, with which a timer would fire at once', () => {
    assert.deepEqual([LONGEST_MS + 1, 1e300, Infinity].map(timerMs), [
      LONGEST_MS,
      LONGEST_MS,
      LONGEST_MS,
    ]);
  });
});

describe('a wait of 30 days', () => {
  it('does not end at once: sleep and signalWithin limit their timers', (t) => {
    const timers = t.mock.method(globalThis, 'setTimeout', () => ({ unref: () => undefined }));
    void systemClock.sleep(30 * 86_400_000);
    signalWithin(new AbortController().signal, 30 * 86_400_000);
    const delays = timers.mock.calls.map(({ arguments: [, ms] }: { arguments: unknown[] }) => ms);
    assert.deepEqual(delays, [LONGEST_MS, LONGEST_MS]);
  });
});

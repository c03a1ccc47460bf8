import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { signalWithin, systemClock, timerMs } from '#src/runtime/clock.ts';

const LONGEST_MS = 2_147_483_647;

describe('timerMs', () => {
  it('leaves a delay as it is that a timer can wait for', () => {
    assert.deepEqual([0, 0.5, 300_000, LONGEST_MS].map(timerMs), [0, 0.5, 300_000, LONGEST_MS]);
  });

  it('makes a longer one as long as a timer can wait, which else would fire at once', () => {
    assert.deepEqual([LONGEST_MS + 1, 1e300, Infinity].map(timerMs), [
      LONGEST_MS,
      LONGEST_MS,
      LONGEST_MS,
    ]);
  });
});

describe('a wait of 30 days', () => {
  it('does not end at once: neither a sleep nor a signal asks more of a timer than it can', (t) => {
    const timers = t.mock.method(globalThis, 'setTimeout', () => ({ unref: () => undefined }));
    void systemClock.sleep(30 * 86_400_000);
    signalWithin(new AbortController().signal, 30 * 86_400_000);
    const delays = timers.mock.calls.map(({ arguments: [, ms] }: { arguments: unknown[] }) => ms);
    assert.deepEqual(delays, [LONGEST_MS, LONGEST_MS]);
  });
});

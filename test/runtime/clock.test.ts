import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { signalWithin, systemClock } from '#src/runtime/clock.ts';

const LONGEST_MS = 2_147_483_647;

describe('a wait of 30 days', () => {
  it('does not end at once: sleep and signalWithin limit their timers', (t) => {
    const timers = t.mock.method(globalThis, 'setTimeout', () => ({ unref: () => undefined }));
    void systemClock.sleep(30 * 86_400_000);
    signalWithin(new AbortController().signal, 30 * 86_400_000);
    const delays = timers.mock.calls.map(({ arguments: [, ms] }: { arguments: unknown[] }) => ms);
    assert.deepEqual(delays, [LONGEST_MS, LONGEST_MS]);
  });
});

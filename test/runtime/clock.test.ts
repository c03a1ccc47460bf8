import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { describe, it } from 'node:test';
import { signalWithin, systemClock, timerMs, unlessAborted } from '#src/runtime/clock.ts';

const LONGEST_MS = 2_147_483_647;

describe('timerMs', () => {
  it('limits a delay with which a timer would fire at once, and changes no other', () => {
    const delays = [0, 0.5, LONGEST_MS, LONGEST_MS + 1, Infinity];
    assert.deepEqual(delays.map(timerMs), [0, 0.5, LONGEST_MS, LONGEST_MS, LONGEST_MS]);
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

const never = new Promise<string>(() => {});

describe('unlessAborted', () => {
  it('resolves or rejects as the promise does, and leaves no listener on the signal', async () => {
    const { signal } = new AbortController();
    assert.equal(await unlessAborted(Promise.resolve('x'), signal), 'x');
    await assert.rejects(unlessAborted(Promise.reject(new Error('no')), signal), /^Error: no$/);
    assert.equal(getEventListeners(signal, 'abort').length, 0);
  });

  it('resolves with undefined when the signal aborts', async () => {
    const stop = new AbortController();
    const waiting = unlessAborted(never, stop.signal);
    stop.abort();
    assert.equal(await waiting, undefined);
  });

  it('does not wait if the signal has aborted, and ignores a later rejection', async () => {
    const late = new Promise<string>((_resolve, reject) =>
      setImmediate(() => reject(new Error('late'))),
    );
    assert.equal(await unlessAborted(late, AbortSignal.abort()), undefined);
    await assert.rejects(late);
  });
});

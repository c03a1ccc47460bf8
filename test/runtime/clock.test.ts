import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { performance } from 'node:perf_hooks';
import { describe, it } from 'node:test';
import {
  everyPeriod,
  signalWithin,
  systemClock,
  timerMs,
  unlessAborted,
  untilNext,
} from '#src/runtime/clock.ts';
import { sleep } from '../harness/queue.ts';
import { until } from '../harness/until.ts';

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

const PERIOD_MS = 100;

describe('untilNext', () => {
  it('ends at a multiple of the period, and not at one that is as good as reached', () => {
    for (let i = 0; i < 10_000; i += 1) {
      const beforeMs = performance.now();
      const waitMs = untilNext(PERIOD_MS);
      const afterMs = performance.now();
      assert.ok(waitMs >= 0.05 * PERIOD_MS && waitMs <= 1.05 * PERIOD_MS + 1, `${waitMs} ms`);
      // Rounded up, to whole milliseconds.
      const multipleMs = Math.floor((afterMs + waitMs) / PERIOD_MS) * PERIOD_MS;
      assert.ok(beforeMs + waitMs - 1 <= multipleMs, `${beforeMs} and ${waitMs} ms`);
    }
  });
});

describe('everyPeriod', () => {
  it('ticks again and again until it is ended', async () => {
    let ticks = 0;
    const end = everyPeriod(PERIOD_MS / 10, () => void (ticks += 1));
    await until(() => ticks >= 3, 'three ticks');
    end();
    const before = ticks;
    await sleep(PERIOD_MS / 2);
    assert.equal(ticks, before);
  });
});

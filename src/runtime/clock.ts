/** The time, and waits. Passed as an argument, so that tests can control it. */
export interface Clock {
  /** Unix time in milliseconds. */
  nowMs(): number;
  /** Resolves after `ms` (24.8 days at most), or at once when the signal aborts; never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** The longest delay of a timer in Node, 24.8 days. A timer with a longer delay fires at once. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Limits a delay to what a timer can wait. Use it for each delay that a user chooses. */
export function timerMs(ms: number): number {
  return Math.min(ms, LONGEST_TIMER_MS);
}

/** A signal that aborts with its parent, or after `ms`. AbortSignal.any with AbortSignal.timeout
 * can't be used: Node 20 may collect the timeout as garbage before it fires. */
export function signalWithin(parent: AbortSignal | undefined, ms: number): AbortSignal {
  const controller = new AbortController();
  const abort = (): void => {
    clearTimeout(timer);
    parent?.removeEventListener('abort', abort);
    controller.abort('time is up');
  };
  const timer = setTimeout(abort, timerMs(ms));
  timer.unref();
  if (parent?.aborted === true) abort();
  else parent?.addEventListener('abort', abort, { once: true });
  return controller.signal;
}

/** The machine's clock. */
export const systemClock: Clock = {
  nowMs: () => Date.now(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted === true) return resolve();
      const done = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, timerMs(ms));
      signal?.addEventListener('abort', done, { once: true });
    }),
};

/** Waits for the promise, or for the abort of the signal.
 * @returns undefined if the signal aborts first
 * @throws  what the promise rejects with, if that comes first */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => resolve(undefined);
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    void promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

/** Delays between attempts: the first one, and the longest. */
export interface Backoff {
  readonly startMs: number;
  readonly maxMs: number;
}

/** Computes the delay after so many failures in a row (1 or more). It doubles with each failure. */
export function backoffMs({ startMs, maxMs }: Backoff, failures: number): number {
  return Math.min(maxMs, startMs * 2 ** Math.min(Math.max(0, failures - 1), 50));
}

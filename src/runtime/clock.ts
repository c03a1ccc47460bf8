/** Time as an argument, so that a test can own it. */
export interface Clock {
  /** Unix time in milliseconds. */
  nowMs(): number;
  /** Resolves after `ms` (24.8 days at most), or at once when the signal aborts; never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** The longest that a timer of Node's waits, 24.8 days; told to wait longer it fires at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** As long as asked for, or as long as a timer can wait. For each delay that somebody may choose,
 * by a flag for one. */
export function timerMs(ms: number): number {
  return Math.min(ms, LONGEST_TIMER_MS);
}

/** A signal that aborts with its parent, or after `ms`. AbortSignal.any over AbortSignal.timeout
 * does not do: Node 20 may collect the timeout before it fires. */
export function signalWithin(parent: AbortSignal, ms: number): AbortSignal {
  const controller = new AbortController();
  const abort = (): void => {
    clearTimeout(timer);
    parent.removeEventListener('abort', abort);
    controller.abort('time is up');
  };
  const timer = setTimeout(abort, timerMs(ms));
  timer.unref();
  if (parent.aborted) abort();
  else parent.addEventListener('abort', abort, { once: true });
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

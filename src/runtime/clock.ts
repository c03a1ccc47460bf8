/** Time as an argument, so that a test can own it. */
export interface Clock {
  /** Unix time in milliseconds. */
  nowMs(): number;
  /** Resolves after `ms`, or at once when the signal aborts; never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** A signal that aborts with its parent, or after `ms`. AbortSignal.any over AbortSignal.timeout does not do: Node 20 may collect the timeout before it fires. */
export function signalWithin(parent: AbortSignal, ms: number): AbortSignal {
  const controller = new AbortController();
  const abort = (): void => {
    clearTimeout(timer);
    parent.removeEventListener('abort', abort);
    controller.abort('time is up');
  };
  const timer = setTimeout(abort, ms);
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
      const timer = setTimeout(done, ms);
      signal?.addEventListener('abort', done, { once: true });
    }),
};

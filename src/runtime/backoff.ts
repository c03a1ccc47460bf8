/** Delays between attempts: the first one, and the longest. */
export interface Backoff {
  readonly startMs: number;
  readonly maxMs: number;
}

/** The delay after a number of failures in a row, from 1: it doubles with each. */
export function backoffMs({ startMs, maxMs }: Backoff, failures: number): number {
  return Math.min(maxMs, startMs * 2 ** Math.min(Math.max(0, failures - 1), 50));
}

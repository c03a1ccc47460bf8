import { performance } from 'node:perf_hooks';

/** The part of a period by which a timer may be early: Node's timers start from a time that may be
 * some milliseconds ago. */
const EARLY = 0.05;

/** The time until the next multiple of the period on the process's own clock, in ms. Parts that
 * wait for that wake an idle process together, and their commands go out in one write. */
export function untilNext(periodMs: number): number {
  const leftMs = periodMs - (performance.now() % periodMs);
  return Math.ceil(leftMs < periodMs * EARLY ? leftMs + periodMs : leftMs);
}

/** Calls `tick` at each multiple of the period.
 * @returns a function that ends that */
export function everyPeriod(periodMs: number, tick: () => void): () => void {
  const run = (): void => {
    timer = setTimeout(run, untilNext(periodMs));
    tick();
  };
  let timer = setTimeout(run, untilNext(periodMs));
  return () => clearTimeout(timer);
}

import { timerMs } from '../runtime/clock.ts';

/** Waits between tries, from --retry-interval-start and --retry-interval-max. */
export interface Backoff {
  readonly startMs: number;
  readonly maxMs: number;
}

/** How long to wait after a failure: uniform in [1, min(maxMs, startMs * 2^(attempt-1))] (full
 * jitter), raised to `minDelayMs`.
 * @param attempt failures so far, this one included: 1 for the first
 * @param random  0 <= random < 1
 * @returns       whole milliseconds, 1 or more whatever the arguments are: BullMQ retries at once
 *                on 0 and NaN, and gives up on -1 */
export function retryDelayMs(
  attempt: number,
  backoff: Backoff,
  random: number,
  minDelayMs = 0,
): number {
  return atLeastOne(Math.max(ceilingMs(attempt, backoff) * fraction(random), minDelayMs));
}

/** How long to wait before asking again about something that is under way: the upper half of the
 * same ceiling, so that it never asks in haste. */
export function pollDelayMs(attempt: number, backoff: Backoff, random: number): number {
  return atLeastOne((ceilingMs(attempt, backoff) * (1 + fraction(random))) / 2);
}

function ceilingMs(attempt: number, backoff: Backoff): number {
  const doublings = Math.min(Math.max(Number.isFinite(attempt) ? attempt - 1 : 0, 0), 52);
  return Math.min(backoff.maxMs, backoff.startMs * 2 ** doublings);
}

function fraction(random: number): number {
  return random >= 0 && random <= 1 ? random : 1;
}

/** No longer than a timer, which keeps Infinity out of the delayed set, where it would stay for
 * ever. */
function atLeastOne(ms: number): number {
  return Number.isNaN(ms) ? 1000 : timerMs(Math.max(1, Math.round(ms)));
}

import { Code } from '../csi/status.ts';

/** How a call went, as the limit sees it. */
export interface LimitSample {
  readonly startedMs: number;
  readonly endedMs: number;
  readonly code: number;
}

export interface AdaptiveLimitOptions {
  /** Calls at once at the beginning. */
  readonly start: number;
  /** Never above. */
  readonly max: number;
}

const SHRINK = 0.7;
/** A call this much slower than the driver's usual pace is a sign that calls wait for each other
 * inside it. */
const SLOW_FACTOR = 2;
/** Below this nobody can tell load from noise. */
const SLOW_FLOOR_MS = 100;
/** Weights of the moving averages: recent pace, usual pace. */
const RECENT = 0.2;
const USUAL = 0.01;

/** How many calls of a method a driver takes well: grows by one per round of good answers while it
 * is used up (additive increase), shrinks by a third when the driver says that it is too much or
 * gets slow (multiplicative decrease). At most one step down per round: calls that were under way
 * when it shrank say nothing about the new limit. Pure; time comes with the samples. */
export class AdaptiveLimit {
  readonly #max: number;
  #limit: number;
  #recentMs: number | undefined;
  #usualMs = 0;
  #shrunkMs = -Infinity;

  constructor(options: AdaptiveLimitOptions) {
    this.#max = options.max;
    this.#limit = Math.min(options.start, options.max);
  }

  /** Calls that may be under way at once; at least 1. */
  get limit(): number {
    return Math.floor(this.#limit);
  }

  /** A call ended.
   * @param running  calls under way before it ended, itself included */
  observe(sample: LimitSample, running: number): void {
    if (isOverload(sample.code)) return this.#shrink(sample);
    // Refusals of other kinds are quick, whatever the load.
    if (sample.code !== Code.OK) return;
    const tookMs = sample.endedMs - sample.startedMs;
    if (this.#recentMs === undefined) this.#recentMs = this.#usualMs = tookMs;
    this.#recentMs += RECENT * (tookMs - this.#recentMs);
    if (this.#recentMs > SLOW_FLOOR_MS && this.#recentMs > SLOW_FACTOR * this.#usualMs) {
      this.#shrink(sample);
    } else if (running >= this.limit) {
      this.#limit = Math.min(this.#max, this.#limit + 1 / this.#limit);
    }
    // A driver that stays slow has a new usual pace in the end, else the limit would sink to 1 for
    // good.
    this.#usualMs += (tookMs < this.#usualMs ? RECENT : USUAL) * (tookMs - this.#usualMs);
  }

  #shrink({ startedMs, endedMs }: LimitSample): void {
    if (startedMs < this.#shrunkMs) return;
    this.#shrunkMs = endedMs;
    this.#limit = Math.max(1, this.#limit * SHRINK);
  }
}

function isOverload(code: number): boolean {
  return (
    code === Code.ResourceExhausted || code === Code.Unavailable || code === Code.DeadlineExceeded
  );
}

import { Code } from '../csi/status.ts';

/** A call that has ended. */
export interface LimitSample {
  readonly startedMs: number;
  readonly endedMs: number;
  readonly code: number;
}

/** Codes with which a driver reports overload. */
const OVERLOAD = new Set<number>([Code.ResourceExhausted, Code.Unavailable, Code.DeadlineExceeded]);
const SHRINK = 0.7;
/** Calls that take this many times their usual duration count as a sign of overload. */
const SLOW_FACTOR = 2;
/** Below this duration, load can't be told from noise. */
const SLOW_FLOOR_MS = 100;
/** Weights of a new sample in the moving averages of the recent and of the usual duration. */
const RECENT = 0.2;
const USUAL = 0.01;

/** Finds how many calls of a method a driver can handle at once, by additive increase and
 * multiplicative decrease. The limit grows by about one per round of OK answers while it is fully
 * used. It shrinks by a third when the driver reports overload or gets slow, at most once per
 * round: calls that started before the last decrease say nothing about the new limit. Time comes
 * only from the samples. */
export class AdaptiveLimit {
  readonly #max: number;
  #limit: number;
  #recentMs: number | undefined;
  #usualMs = 0;
  #shrunkMs = -Infinity;

  /** @param start  initial limit, unless `max` is lower */
  constructor({ start, max }: { readonly start: number; readonly max: number }) {
    this.#max = max;
    this.#limit = Math.min(start, max);
  }

  /** Calls that may be under way at once; at least 1. */
  get limit(): number {
    return Math.floor(this.#limit);
  }

  /** Takes the result of a call into account.
   * @param running  calls that were under way when it ended, itself included */
  observe(sample: LimitSample, running: number): void {
    if (OVERLOAD.has(sample.code)) return this.#shrink(sample);
    // Other errors come quickly under any load.
    if (sample.code !== Code.OK) return;
    const tookMs = sample.endedMs - sample.startedMs;
    if (this.#recentMs === undefined) this.#recentMs = this.#usualMs = tookMs;
    this.#recentMs += RECENT * (tookMs - this.#recentMs);
    if (this.#recentMs > SLOW_FLOOR_MS && this.#recentMs > SLOW_FACTOR * this.#usualMs) {
      this.#shrink(sample);
    } else if (running >= this.limit) {
      this.#limit = Math.min(this.#max, this.#limit + 1 / this.#limit);
    }
    // If a driver stays slow, that becomes its usual duration. Otherwise the limit would sink to 1
    // and stay there.
    this.#usualMs += (tookMs < this.#usualMs ? RECENT : USUAL) * (tookMs - this.#usualMs);
  }

  #shrink({ startedMs, endedMs }: LimitSample): void {
    if (startedMs < this.#shrunkMs) return;
    this.#shrunkMs = endedMs;
    this.#limit = Math.max(1, this.#limit * SHRINK);
  }
}

import { systemClock, type Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';

export interface CircuitBreakerOptions {
  /** Runs at once while the driver can be reached. */
  readonly concurrency: number;
  /** Pause before the first canary; doubles up to `maxMs` while they fail. */
  readonly pause?: { readonly startMs: number; readonly maxMs: number };
  /** A canary that is under way for this long has got through: a driver that is away refuses at
   * once. */
  readonly trialPassesAfterMs?: number;
  /** `limit` or `isResting` changed. */
  readonly onChange: () => void;
  readonly log: Logger;
  readonly clock?: Clock;
}

const PAUSE = { startMs: 250, maxMs: 5_000 };
const PATIENCE_MS = 2_000;

/** How many runs a worker may have under way. All, while its driver can be reached. When a run
 * finds that nothing reaches the driver, none; after a pause one, the canary; and once that got
 * through, twice as many with each one that follows, so that a driver that just came back is not
 * met by everything at once. */
export class CircuitBreaker {
  readonly #options: CircuitBreakerOptions;
  readonly #clock: Clock;
  readonly #stopped = new AbortController();
  #allowed: number;
  #pauseMs: number;
  #isResting = false;
  #why: string | undefined;
  #running = 0;
  /** Runs that began before the driver went away: they don't count as canaries. */
  #stale = 0;
  #turn = 0;

  constructor(options: CircuitBreakerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#allowed = options.concurrency;
    this.#pauseMs = this.#pause.startMs;
  }

  /** Runs that may be under way, those of before included; 1 or more. */
  get limit(): number {
    return Math.min(this.#options.concurrency, this.#stale + this.#allowed);
  }

  /** Between two canaries: no job is taken. */
  get isOpen(): boolean {
    return this.#isResting;
  }

  /** Less is allowed than there is room for. */
  get isLimiting(): boolean {
    return this.#isResting || this.#allowed < this.#options.concurrency;
  }

  /** One line, until a run got through. */
  get trouble(): string | undefined {
    return this.#why === undefined
      ? undefined
      : `the driver can't be reached, so one run at a time tries it: ${this.#why}`;
  }

  /** A run begins. The result is to be told how it ended: `refused` with the reason where nothing
   * reached the driver, `reached` where something did, or nothing is known. */
  begin(): (
    end:
      | { readonly kind: 'reached' | 'unknown' }
      | { readonly kind: 'refused'; readonly reason: string },
  ) => void {
    const turn = this.#turn;
    this.#running += 1;
    const ended = new AbortController();
    if (this.isLimiting) {
      void this.#clock
        .sleep(this.#options.trialPassesAfterMs ?? PATIENCE_MS, ended.signal)
        .then(() => {
          if (!ended.signal.aborted && turn === this.#turn) this.#reached();
        });
    }
    return (end) => {
      ended.abort('ended');
      this.#running -= 1;
      if (turn !== this.#turn) this.#stale = Math.max(0, this.#stale - 1);
      if (end.kind === 'refused' && turn === this.#turn) this.#refused(end.reason);
      else if (end.kind === 'reached' && turn === this.#turn) this.#reached();
      else if (this.isLimiting) this.#options.onChange();
    };
  }

  stop(): void {
    this.#stopped.abort('stopped');
  }

  get #pause(): { readonly startMs: number; readonly maxMs: number } {
    return this.#options.pause ?? PAUSE;
  }

  #refused(reason: string): void {
    const { log, onChange } = this.#options;
    if (this.#why === undefined)
      log.warn(
        { reason },
        "the driver can't be reached: the queue pauses, and one run at a time tries it",
      );
    this.#why = reason;
    this.#isResting = true;
    this.#allowed = 1;
    this.#stale = this.#running;
    this.#turn += 1;
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(this.#pause.maxMs, pauseMs * 2);
    onChange();
    void this.#clock.sleep(pauseMs, this.#stopped.signal).then(() => {
      if (this.#stopped.signal.aborted) return;
      this.#isResting = false;
      onChange();
    });
  }

  #reached(): void {
    if (!this.isLimiting) return;
    const { concurrency, log, onChange } = this.#options;
    if (this.#why !== undefined) log.info('the driver is reached again: the queue goes on');
    this.#why = undefined;
    this.#pauseMs = this.#pause.startMs;
    this.#allowed = Math.min(concurrency, this.#allowed * 2);
    onChange();
  }
}

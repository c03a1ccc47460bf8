import { type Clock, systemClock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { Backoff } from './backoff.ts';

export interface CircuitBreakerOptions {
  /** Runs at once while the breaker is closed. */
  readonly concurrency: number;
  /** Time before the first trial run; doubles up to `maxMs` while trial runs fail. */
  readonly pause?: Backoff;
  /** `limit` or `isOpen` changed. */
  readonly onChange: () => void;
  readonly log: Logger;
  readonly clock?: Clock;
}

/** Whether a run reached the driver; `unknown` where its outcome does not tell. */
export type Reach =
  | { readonly kind: 'reached' | 'unknown' }
  | { readonly kind: 'unreachable'; readonly reason: string };

const PAUSE: Backoff = { startMs: 250, maxMs: 5_000 };
/** A trial run that is under way for this long counts as one that reached the driver: calls to a
 * driver that is down are refused at once. */
const TRIAL_PASSES_AFTER_MS = 2_000;

/** Limits how many runs a worker may have under way while its driver can't be reached. The consumer
 * asks for the limit and passes it to BullMQ.
 *
 * - Closed: the driver can be reached, and all places may be used. A run that finds the driver
 *   unreachable opens the breaker.
 * - Open: no job is taken. After a pause, which grows with each opening, the breaker is half-open.
 * - Half-open: one trial run may be under way. When it reaches the driver two may, then four and so
 *   on, so that a driver which has just come back does not get everything at once; when all places
 *   may be used the breaker is closed. A run that finds the driver unreachable opens it again.
 *
 * Runs that began before the last opening are no trial runs: their ends change nothing. */
export class CircuitBreaker {
  readonly #options: CircuitBreakerOptions;
  readonly #clock: Clock;
  readonly #pause: Backoff;
  readonly #stopped = new AbortController();
  /** Runs that may be under way, those from before the last opening not counted. */
  #allowed: number;
  #nextPauseMs: number;
  #isOpen = false;
  /** Why the driver was unreachable; undefined once a trial run reached it. */
  #reason: string | undefined;
  #running = 0;
  /** Runs under way from before the last opening. */
  #runningSinceBefore = 0;
  #openings = 0;

  constructor(options: CircuitBreakerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#pause = options.pause ?? PAUSE;
    this.#allowed = options.concurrency;
    this.#nextPauseMs = this.#pause.startMs;
  }

  /** Runs that may be under way, those from before the last opening included; 1 or more. */
  get limit(): number {
    return Math.min(this.#options.concurrency, this.#runningSinceBefore + this.#allowed);
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  get isClosed(): boolean {
    return !this.#isOpen && this.#allowed >= this.#options.concurrency;
  }

  /** Why the driver can't be reached, in one line; undefined once a trial run reached it. */
  get trouble(): string | undefined {
    return this.#reason === undefined
      ? undefined
      : `the driver can't be reached, so one run at a time tries it: ${this.#reason}`;
  }

  /** Counts a run that begins.
   * @returns a function to be called with the run's end */
  begin(): (reach: Reach) => void {
    const openings = this.#openings;
    const isCurrent = (): boolean => openings === this.#openings;
    this.#running += 1;
    const ended = new AbortController();
    if (!this.isClosed) {
      void this.#clock.sleep(TRIAL_PASSES_AFTER_MS, ended.signal).then(() => {
        if (!ended.signal.aborted && isCurrent()) this.#allowMore();
      });
    }
    return (reach) => {
      ended.abort('ended');
      this.#running -= 1;
      if (!isCurrent()) this.#runningSinceBefore = Math.max(0, this.#runningSinceBefore - 1);
      if (reach.kind === 'unreachable' && isCurrent()) this.#open(reach.reason);
      else if (reach.kind === 'reached' && isCurrent()) this.#allowMore();
      else if (!this.isClosed) this.#options.onChange();
    };
  }

  stop(): void {
    this.#stopped.abort('stopped');
  }

  #open(reason: string): void {
    const { log, onChange } = this.#options;
    if (this.#reason === undefined)
      log.warn(
        { reason },
        "the driver can't be reached: the queue pauses, and one run at a time tries it",
      );
    this.#reason = reason;
    this.#isOpen = true;
    this.#allowed = 1;
    this.#runningSinceBefore = this.#running;
    this.#openings += 1;
    const pauseMs = this.#nextPauseMs;
    this.#nextPauseMs = Math.min(this.#pause.maxMs, pauseMs * 2);
    onChange();
    void this.#clock.sleep(pauseMs, this.#stopped.signal).then(() => {
      if (this.#stopped.signal.aborted) return;
      this.#isOpen = false;
      onChange();
    });
  }

  #allowMore(): void {
    if (this.isClosed) return;
    const { concurrency, log, onChange } = this.#options;
    if (this.#reason !== undefined) log.info('the driver can be reached again: the queue goes on');
    this.#reason = undefined;
    this.#nextPauseMs = this.#pause.startMs;
    this.#allowed = Math.min(concurrency, this.#allowed * 2);
    onChange();
  }
}

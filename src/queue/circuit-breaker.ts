import { type Backoff, backoffMs, systemClock } from '../runtime/clock.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { BLIP_MS, Outage } from '../runtime/outage.ts';
import type { Outcome } from './outcome.ts';

interface CircuitBreakerOptions {
  /** Runs at once while the breaker is closed. */
  readonly concurrency: number;
  /** Time before the first trial run, which doubles while trial runs fail. */
  readonly pause: Backoff;
  readonly knownMs?: number;
  readonly trialPassesAfterMs?: number;
  readonly log: Logger;
}

/** After a trial run that takes longer, more may be under way: calls to a driver that is down are
 * refused at once. */
const TRIAL_PASSES_AFTER_MS = 2_000;
/** While keys wait for a driver that is down, a trial run says so each few seconds. Where none did
 * for so long, as when the last of them was deleted, nobody knows whether it still is. */
const KNOWN_MS = 30_000;
const MESSAGE = "the driver can't be reached: the queue pauses, with one trial run at a time";

/** Limits how many runs a worker may have under way while its driver can't be reached. The consumer
 * passes the limit to BullMQ.
 *
 * - Closed: the driver can be reached, and `concurrency` runs may be under way. A run that can't
 *   reach the driver opens the breaker.
 * - Open: no job is taken. After a pause, which grows with each opening, the breaker is half-open.
 * - Half-open: one trial run may be under way. When it reaches the driver, two may be, then four
 *   and so on, so that a driver that has just started does not get everything at once. When
 *   `concurrency` may be, the breaker is closed. A run that can't reach the driver opens it again.
 *
 * A run reached the driver if the driver answered it. One that found its gateway full counts as one
 * that did: the driver has as many calls as it may have. One that ended without a call says nothing
 * about the driver. Runs that began before the last opening are no trial runs: their ends change
 * nothing. */
export class CircuitBreaker {
  readonly #options: CircuitBreakerOptions;
  readonly #stopped = new AbortController();
  readonly #changes = new Listeners<void>();
  /** Runs that may be under way, not counting those that began before the last opening. */
  #allowed: number;
  /** Openings since the driver was last reached. */
  #failures = 0;
  #isOpen = false;
  /** Why the driver was unreachable; undefined once a trial run reached it. */
  #reason: string | undefined;
  #forgetting: NodeJS.Timeout | undefined;
  #running = 0;
  /** Runs under way that began before the last opening. */
  #runningOlder = 0;
  #openings = 0;
  /** The first trial run comes up to a second after the driver is back. */
  readonly #outage: Outage;

  constructor(options: CircuitBreakerOptions) {
    this.#options = options;
    this.#allowed = options.concurrency;
    this.#outage = new Outage(options.log, 2 * BLIP_MS);
  }

  /** Calls the listener when `limit` or `isOpen` changed. */
  onChange(listener: () => void): void {
    this.#changes.subscribe(listener);
  }

  /** Runs that may be under way, counting those that began before the last opening; 1 or more. */
  get limit(): number {
    return Math.min(this.#options.concurrency, this.#runningOlder + this.#allowed);
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  get isClosed(): boolean {
    return !this.#isOpen && this.#allowed >= this.#options.concurrency;
  }

  /** Why the last run did not reach the driver, in one line; undefined once a trial run reached it,
   * or none has called it for KNOWN_MS. */
  get trouble(): string | undefined {
    return this.#reason === undefined
      ? undefined
      : `the driver can't be reached, so one trial run at a time is made: ${this.#reason}`;
  }

  /** Counts a run that begins.
   * @returns what to call when the driver has answered the run, and when the run ends */
  begin(): { readonly reachedDriver: () => void; readonly end: (outcome: Outcome) => void } {
    let isReached = false;
    const openings = this.#openings;
    const isCurrent = (): boolean => openings === this.#openings;
    this.#running += 1;
    const ended = this.isClosed ? undefined : new AbortController();
    if (ended !== undefined) {
      const { trialPassesAfterMs = TRIAL_PASSES_AFTER_MS } = this.#options;
      void systemClock.sleep(trialPassesAfterMs, ended.signal).then(() => {
        if (!ended.signal.aborted && isCurrent()) this.#allowMore();
      });
    }
    const end = (outcome: Outcome): void => {
      // With a reason given, abort() does not build an exception with a stack trace.
      ended?.abort('ended');
      this.#running -= 1;
      if (!isCurrent()) this.#runningOlder = Math.max(0, this.#runningOlder - 1);
      else if (outcome.kind === 'later' && outcome.isDriverDown === true)
        return this.#open(outcome.reason);
      else if (isReached || (outcome.kind === 'later' && outcome.isGatewayFull === true)) {
        this.#noteReached();
        return this.#allowMore();
      }
      if (!this.isClosed) this.#changes.notify();
    };
    return { reachedDriver: () => (isReached = true), end };
  }

  stop(): void {
    this.#stopped.abort();
    clearTimeout(this.#forgetting);
    this.#outage.forget();
  }

  #open(reason: string): void {
    const { pause, knownMs = KNOWN_MS } = this.#options;
    this.#outage.met('', { reason }, MESSAGE);
    this.#reason = reason;
    this.#isOpen = true;
    this.#allowed = 1;
    this.#runningOlder = this.#running;
    this.#openings += 1;
    this.#failures += 1;
    const pauseMs = backoffMs(pause, this.#failures);
    this.#changes.notify();
    void systemClock.sleep(pauseMs, this.#stopped.signal).then(() => {
      if (this.#stopped.signal.aborted) return;
      this.#isOpen = false;
      this.#changes.notify();
    });
    clearTimeout(this.#forgetting);
    this.#forgetting = setTimeout(() => this.#forget(), pauseMs + knownMs).unref();
  }

  #forget(): void {
    if (this.#reason === undefined) return;
    this.#reason = undefined;
    this.#outage.ended({}, 'no run has called the driver since: whether it is there is not known');
    this.#changes.notify();
  }

  #noteReached(): void {
    if (this.#reason === undefined) return;
    this.#outage.ended({}, 'the driver can be reached again: the queue resumes');
    this.#reason = undefined;
    this.#failures = 0;
    this.#changes.notify();
  }

  #allowMore(): void {
    if (this.isClosed) return;
    const { concurrency } = this.#options;
    this.#allowed = Math.min(concurrency, this.#allowed * 2);
    this.#changes.notify();
  }
}

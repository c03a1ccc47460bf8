import { performance } from 'node:perf_hooks';
import { type Clock, signalWithin } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { BLIP_MS, Outage } from '../runtime/outage.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import { holderOf, type Observation, observe, otherHolder } from './lease.ts';
import type { LeaseStore, StoredLease } from './kube-lease-store.ts';
import {
  type CallVerdict,
  judgeCall,
  type LeaseView,
  pauseOf,
  type SeenLease,
} from './lease-view.ts';

export interface LeaseFollowerOptions {
  readonly store: Pick<LeaseStore, 'get' | 'watch'>;
  /** "namespace/name", for people. */
  readonly lease: string;
  /** Called with each read and each event of the watch. */
  readonly onSeen?: () => void;
  /** Whether there may be no Lease, since nobody competes for it. */
  readonly mayLack?: boolean;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Longest time without news of the Lease: half of what a view of it counts for. Its holder renews
 * it every few seconds, so the watch is rarely silent for longer while it is held. */
const SILENCE_MS = 4_000;
const GET_TIMEOUT_MS = 4_000;
const RETRY_MS = 1_000;
const TICK_MS = 1_000;

const UNKNOWN = 'the driver’s Lease can’t be read: no call is begun 10 s after it was read last';

/** Follows a Lease without competing for it, and knows whether another provisioner holds it, as an
 * elector would: by the local clock, never by the times in the Lease. */
export class LeaseFollower implements LeaseView {
  readonly #options: LeaseFollowerOptions;
  readonly #loop: PollLoop;
  readonly #endWatch: () => void;
  readonly #timer: NodeJS.Timeout;
  readonly #firstRead: Promise<void>;
  #endFirstRead: () => void = () => undefined;
  #seen: Observation | undefined;
  #stored: StoredLease | undefined;
  #heardMs = -Infinity;
  /** By performance.now(), before the read began. */
  #seenMs = -Infinity;
  /** The last two ticks, by performance.now(). An event of the watch was sent after the first of
   * them: a process that stood still finds old ones when it goes on. */
  #ticksMs: readonly [number, number] = [performance.now(), performance.now()];
  #trouble: string | undefined;
  readonly #outage: Outage;

  constructor(options: LeaseFollowerOptions) {
    const { store, clock, log, lease } = options;
    this.#options = options;
    this.#outage = new Outage(log, RETRY_MS + BLIP_MS);
    this.#firstRead = new Promise((resolve) => (this.#endFirstRead = resolve));
    this.#loop = new PollLoop({
      step: (signal) => this.#poll(signal),
      onError: (error) => log.error({ err: error, lease }, 'following the Lease failed'),
      periodMs: SILENCE_MS,
      clock,
    });
    this.#timer = setInterval(() => {
      this.#ticksMs = [this.#ticksMs[1], performance.now()];
    }, TICK_MS);
    this.#endWatch = store.watch((stored) => this.#heard(stored, this.#ticksMs[0]));
  }

  /** The other provisioner that holds the Lease; undefined: none does, its time is over, or it is
   * not known. */
  get otherHolder(): string | undefined {
    return otherHolder(holderOf(this.#seen, this.#options.clock.nowMs()));
  }

  /** The Lease as it was seen last; undefined: it was not read yet. */
  get seen(): SeenLease | undefined {
    if (this.#seenMs === -Infinity) return undefined;
    return { lease: this.#stored, otherHolder: this.otherHolder, seenMs: this.#seenMs };
  }

  get pause(): string | undefined {
    return this.seen && pauseOf(this.seen);
  }

  judge(history: string, isBegun: boolean): CallVerdict {
    return judgeCall(this.seen, { history, isBegun, nowMs: performance.now() });
  }

  /** Why it is not known who holds the Lease, in one line; undefined while it is. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** Resolves when the first read has ended, with or without success. Never rejects. */
  waitForFirstRead(): Promise<void> {
    return this.#firstRead;
  }

  async stop(): Promise<void> {
    this.#endWatch();
    clearInterval(this.#timer);
    this.#outage.forget();
    await this.#loop.stop();
    this.#endFirstRead();
  }

  /** Reads the Lease, unless the watch has just told of it.
   * @returns how long to wait before the next step, in ms */
  async #poll(stopped: AbortSignal): Promise<number> {
    const { store, clock } = this.#options;
    const silentMs = clock.nowMs() - this.#heardMs;
    // Negative: the clock was set back.
    if (silentMs >= 0 && silentMs < SILENCE_MS) return SILENCE_MS - silentMs;
    const beganMs = performance.now();
    try {
      this.#heard(await store.get(signalWithin(stopped, GET_TIMEOUT_MS)), beganMs);
      return SILENCE_MS;
    } catch (error) {
      const trouble = messageOf(error);
      if (!stopped.aborted) this.#outage.met(trouble, { trouble }, UNKNOWN);
      this.#trouble = trouble;
      return RETRY_MS;
    } finally {
      this.#endFirstRead();
    }
  }

  #heard(stored: StoredLease | undefined, seenMs: number): void {
    const { clock, lease, onSeen, mayLack = false } = this.#options;
    this.#heardMs = clock.nowMs();
    this.#seenMs = seenMs;
    this.#stored = stored;
    this.#outage.ended({ lease }, 'the driver’s Lease can be read');
    this.#seen = observe(this.#seen, stored?.record, this.#heardMs);
    this.#trouble =
      stored === undefined && !mayLack
        ? `there is no Lease ${lease}: an ingest writes it when it begins to lead; if one leads, ` +
          'give jobs the same --leader-election-namespace'
        : undefined;
    this.#endFirstRead();
    onSeen?.();
  }
}

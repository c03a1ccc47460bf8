import { type Clock, signalWithin } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { BLIP_MS, Outage } from '../runtime/outage.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import { holderOf, type Observation, observe, otherHolder } from './lease.ts';
import type { LeaseStore, StoredLease } from './kube-lease-store.ts';

export interface LeaseFollowerOptions {
  readonly store: Pick<LeaseStore, 'get' | 'watch'>;
  /** "namespace/name", for people. */
  readonly lease: string;
  /** Called with what each read and each event of the watch says: the other provisioner that holds
   * the Lease, or undefined. */
  readonly onSeen: (otherHolder: string | undefined) => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Longest time without news of the Lease. Its holder renews it every few seconds, so the watch is
 * rarely silent for longer while it is held. */
const SILENCE_MS = 5_000;
const GET_TIMEOUT_MS = 5_000;
const RETRY_MS = 1_000;

const UNKNOWN = 'it is not known which provisioner leads; going on with what ingest says';

/** Follows a Lease without competing for it, and knows whether another provisioner holds it, as an
 * elector would: by the local clock, never by the times in the Lease. */
export class LeaseFollower {
  readonly #options: LeaseFollowerOptions;
  readonly #loop: PollLoop;
  readonly #endWatch: () => void;
  readonly #firstRead: Promise<void>;
  #endFirstRead: () => void = () => undefined;
  #seen: Observation | undefined;
  #heardMs = -Infinity;
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
    this.#endWatch = store.watch((stored) => this.#heard(stored));
  }

  /** The other provisioner that holds the Lease; undefined: none does, its time is over, or it is
   * not known. */
  get otherHolder(): string | undefined {
    return otherHolder(holderOf(this.#seen, this.#options.clock.nowMs()));
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
    try {
      this.#heard(await store.get(signalWithin(stopped, GET_TIMEOUT_MS)));
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

  #heard(stored: StoredLease | undefined): void {
    const { clock, lease, onSeen } = this.#options;
    this.#heardMs = clock.nowMs();
    this.#outage.ended({ lease }, 'it is known which provisioner leads');
    this.#seen = observe(this.#seen, stored?.record, this.#heardMs);
    this.#trouble =
      stored === undefined
        ? `there is no Lease ${lease}: an ingest writes it when it begins to lead; if one leads, ` +
          'give jobs the same --leader-election-namespace'
        : undefined;
    this.#endFirstRead();
    onSeen(this.otherHolder);
  }
}

import { performance } from 'node:perf_hooks';
import type { KubeClient } from '../kube/client.ts';
import { type Clock, signalWithin, systemClock } from '../runtime/clock.ts';
import type { Closers } from '../runtime/closers.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { BLIP_MS, Outage } from '../runtime/outage.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import { holderOf, type Observation, observe, otherHolder } from './lease.ts';
import { KubeLeaseStore, type LeaseStore } from './kube-lease-store.ts';
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
  readonly clock: Clock;
  readonly log: Logger;
}

/** Well within GRACE_MS, for which a view of the Lease counts. A holder's renewals usually trigger
 * a read earlier. */
const READ_PERIOD_MS = 6_000;
const GET_TIMEOUT_MS = 4_000;
const RETRY_MS = 1_000;

const UNKNOWN = 'could not read the driver’s Lease: 10 s after the last read, calls must wait';

/** Follows a Lease without competing for it, and knows whether another provisioner holds it. Like
 * an elector, it uses the local clock and never the times in the Lease. An event of the watch only
 * makes it read the Lease, because after a freeze the events may be old. */
export class LeaseFollower implements LeaseView {
  readonly #options: LeaseFollowerOptions;
  readonly #loop: PollLoop;
  readonly #endWatch: () => void;
  readonly #firstRead: Promise<void>;
  #endFirstRead: () => void = () => undefined;
  #seen: Observation | undefined;
  /** When the last read that succeeded began, by performance.now(). */
  #readMs = -Infinity;
  #trouble: string | undefined;
  readonly #outage: Outage;

  constructor(options: LeaseFollowerOptions) {
    const { store, clock, log, lease } = options;
    this.#options = options;
    this.#outage = new Outage(log, RETRY_MS + BLIP_MS);
    this.#firstRead = new Promise((resolve) => (this.#endFirstRead = resolve));
    this.#loop = new PollLoop({
      step: (signal) => this.#read(signal),
      onError: (error) => log.error({ err: error, lease }, 'following the Lease failed'),
      periodMs: READ_PERIOD_MS,
      clock,
    });
    this.#endWatch = store.watch(() => this.#loop.runNow());
  }

  get seen(): SeenLease {
    const holder = holderOf(this.#seen, this.#options.clock.nowMs());
    return { lease: this.#seen, otherHolder: otherHolder(holder) };
  }

  get pause(): string | undefined {
    return pauseOf(this.seen);
  }

  judge(history: string, isBegun: boolean): CallVerdict {
    const times = { readMs: this.#readMs, nowMs: performance.now() };
    return judgeCall(this.seen, { history, isBegun, ...times });
  }

  /** Why the holder of the Lease is unknown, in one line; undefined if it is known. */
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
  }

  /** @returns how long to wait before the next read, in ms */
  async #read(stopped: AbortSignal): Promise<number> {
    const { store, clock, lease } = this.#options;
    const beganMs = performance.now();
    try {
      const read = await store.get(signalWithin(stopped, GET_TIMEOUT_MS));
      this.#readMs = beganMs;
      this.#seen = observe(this.#seen, read, clock.nowMs());
      this.#outage.ended({ lease }, 'the driver’s Lease can be read');
      this.#trouble =
        read === undefined
          ? `there is no Lease ${lease}: an ingest writes it when it begins to lead; if one ` +
            'leads, give jobs the same --leader-election-namespace'
          : undefined;
      return READ_PERIOD_MS;
    } catch (error) {
      const trouble = messageOf(error);
      if (!stopped.aborted) this.#outage.met(trouble, { trouble }, UNKNOWN);
      this.#trouble = trouble;
      return RETRY_MS;
    } finally {
      this.#endFirstRead();
    }
  }
}

/** Follows a Lease of the API server until the closers close. */
export function followLease(
  { client, closers, log }: { client: KubeClient; closers: Closers; log: Logger },
  { namespace, name }: { readonly namespace: string; readonly name: string },
): LeaseFollower {
  const store = new KubeLeaseStore({ client, namespace, name, log });
  const lease = `${namespace}/${name}`;
  const follower = new LeaseFollower({ store, lease, clock: systemClock, log });
  closers.add('lease follower', () => follower.stop());
  return follower;
}

import { bareKey, type JobKey, keyId, type KeyToQueue } from '../queue/contract.ts';
import { type Clock, systemClock } from '../runtime/clock.ts';
import type { Dispatcher } from './dispatcher.ts';

type RequestTaker = Pick<Dispatcher, 'ensureQueued' | 'enqueueNow' | 'promote'>;

/** Passes notices on only while this ingest leads.
 *
 * An `ensureQueued` that is dropped while blocked does no harm, because a new leader starts with a
 * resync. But a resync leaves delayed jobs delayed. So the latest `enqueueNow` and `promote` are
 * kept, and passed on when this ingest becomes the leader. */
export class LeaderOnlyQueue {
  readonly #taker: RequestTaker;
  readonly #keepMs: number;
  readonly #clock: Clock;
  /** The last kept call of each key, oldest first. */
  readonly #kept = new Map<string, { readonly pass: () => void; readonly atMs: number }>();
  #holdsLease: () => boolean = blocked;

  /** @param keepMs  how long a call is kept while blocked: the longest time between two leaders */
  constructor(taker: RequestTaker, keepMs: number, clock: Clock = systemClock) {
    this.#taker = taker;
    this.#keepMs = keepMs;
    this.#clock = clock;
  }

  get isAllowing(): boolean {
    return this.#holdsLease();
  }

  /** Lets notices pass from now on, and passes on what was kept while blocked.
   * @param holdsLease  called for each notice, so that a process that was frozen until its Lease
   *   expired enqueues nothing */
  allow(holdsLease: () => boolean): void {
    this.#holdsLease = holdsLease;
    if (!this.isAllowing) return;
    this.#dropExpired();
    for (const { pass } of this.#kept.values()) pass();
    this.#kept.clear();
  }

  block(): void {
    this.#holdsLease = blocked;
  }

  ensureQueued(key: KeyToQueue): void {
    if (this.isAllowing) this.#taker.ensureQueued(key);
  }

  enqueueNow(key: KeyToQueue): void {
    if (this.isAllowing) return this.#taker.enqueueNow(key);
    this.#passOrKeep(key, () => this.#taker.enqueueNow(bareKey(key)));
  }

  promote(key: JobKey): void {
    this.#passOrKeep(key, () => this.#taker.promote(key));
  }

  #passOrKeep(key: JobKey, pass: () => void): void {
    if (this.isAllowing) return pass();
    const id = keyId(key);
    // Deleted first, so that the key moves to the end of the order.
    this.#kept.delete(id);
    this.#kept.set(id, { pass, atMs: this.#clock.nowMs() });
    this.#dropExpired();
  }

  #dropExpired(): void {
    const oldestMs = this.#clock.nowMs() - this.#keepMs;
    for (const [id, { atMs }] of this.#kept) {
      if (atMs >= oldestMs) return;
      this.#kept.delete(id);
    }
  }
}

function blocked(): boolean {
  return false;
}

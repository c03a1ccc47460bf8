import { type JobKey, keyId, type KeyToQueue, withoutCopy } from '../queue/contract.ts';
import type { Producer } from '../queue/producer.ts';
import { type Clock, systemClock } from '../runtime/clock.ts';

/** Passes notices to the producer only while this ingest leads.
 *
 * An `ensureQueued` that is dropped while blocked does no harm, because a new leader starts with a
 * resync. But a resync leaves delayed jobs delayed. So the latest `enqueueNow` and `promote` are
 * kept, and passed on when this ingest becomes the leader. */
export class LeaderOnlyQueue {
  readonly #producer: Pick<Producer, 'ensureQueued' | 'enqueueNow' | 'promote' | 'renewCopy'>;
  readonly #keepMs: number;
  readonly #clock: Clock;
  /** The last kept call of each key, oldest first. */
  readonly #kept = new Map<string, { readonly pass: () => void; readonly atMs: number }>();
  #holdsLease: () => boolean = blocked;

  /** @param keepMs  how long a call is kept while blocked: the longest time between two leaders */
  constructor(
    producer: Pick<Producer, 'ensureQueued' | 'enqueueNow' | 'promote' | 'renewCopy'>,
    keepMs: number,
    clock: Clock = systemClock,
  ) {
    this.#producer = producer;
    this.#keepMs = keepMs;
    this.#clock = clock;
  }

  get isAllowing(): boolean {
    return this.#holdsLease();
  }

  /** Lets notices pass from now on.
   * @param holdsLease  called for each notice, so that a process that was frozen until its Lease
   *   expired enqueues nothing */
  allow(holdsLease: () => boolean): void {
    this.#holdsLease = holdsLease;
    this.passKept();
  }

  /** Passes on what was kept while blocked. */
  passKept(): void {
    if (!this.isAllowing) return;
    this.#dropExpired();
    for (const { pass } of this.#kept.values()) pass();
    this.#kept.clear();
  }

  block(): void {
    this.#holdsLease = blocked;
  }

  /** Also while this process does not lead: it may have led, and lead again. */
  renewCopy(key: KeyToQueue): void {
    this.#producer.renewCopy(key);
  }

  ensureQueued(key: KeyToQueue): void {
    if (this.isAllowing) this.#producer.ensureQueued(key);
  }

  enqueueNow(key: KeyToQueue): void {
    if (this.isAllowing) return this.#producer.enqueueNow(key);
    this.#passOrKeep(key, () => this.#producer.enqueueNow(withoutCopy(key)));
  }

  promote(key: JobKey): void {
    this.#passOrKeep(key, () => this.#producer.promote(key));
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

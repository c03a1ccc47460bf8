import { keyId, type JobKey } from '../queue/contract.ts';
import type { Producer } from '../queue/producer.ts';
import { systemClock, type Clock } from '../runtime/clock.ts';

export interface LeaderGateOptions {
  /** How long `enqueueNow` and `promote` are kept while blocked: as long as there may be no leader
   * between two leaders. */
  readonly keepMs: number;
  readonly clock?: Clock;
}

/** Passes hints to the producer only while this ingest leads.
 *
 * A hint that is dropped while blocked is not lost: a new leader starts with a resync. But a resync
 * leaves delayed jobs delayed. So the `enqueueNow` and `promote` of the last moments are kept, and
 * passed on when this ingest becomes the leader. */
export class LeaderGate {
  readonly #producer: Pick<Producer, 'ensureQueued' | 'enqueueNow' | 'promote'>;
  readonly #options: LeaderGateOptions;
  readonly #clock: Clock;
  /** By key, the last one, oldest first. */
  readonly #kept = new Map<string, { readonly pass: () => void; readonly atMs: number }>();
  #holdsLease: () => boolean = blocked;

  constructor(
    producer: Pick<Producer, 'ensureQueued' | 'enqueueNow' | 'promote'>,
    options: LeaderGateOptions,
  ) {
    this.#producer = producer;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  get isAllowing(): boolean {
    return this.#holdsLease();
  }

  /** @param holdsLease  called for each hint: a process that was frozen until its Lease expired
   *   must not enqueue before it has noticed */
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

  ensureQueued(key: JobKey): void {
    if (this.isAllowing) this.#producer.ensureQueued(key);
  }

  enqueueNow(key: JobKey): void {
    this.#passOrKeep(key, () => this.#producer.enqueueNow(key));
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
    const oldestMs = this.#clock.nowMs() - this.#options.keepMs;
    for (const [id, { atMs }] of this.#kept) {
      if (atMs >= oldestMs) return;
      this.#kept.delete(id);
    }
  }
}

function blocked(): boolean {
  return false;
}

import { keyId } from '../queue/contract.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Producer } from '../queue/producer.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Clock } from '../runtime/clock.ts';

export interface LeaderGateOptions {
  /** Asked each time: a process that was frozen past its lease's end must not enqueue before it has
   * noticed. */
  readonly holdsLease: () => boolean;
  /** For how long ends of waits are kept while it is closed: as long as nobody may lead between two
   * leaders. */
  readonly keepMs: number;
  readonly clock?: Clock;
}

/** Passes hints to the queue only while the lease is held. Keys that are dropped here are not lost:
 * gaining the lease goes through everything. That leaves waits as they are, so `enqueueNow` and
 * `promote` of the last moments are kept and passed on then. */
export class LeaderGate {
  readonly #producer: Pick<Producer, 'ensureQueued' | 'enqueueNow' | 'promote'>;
  readonly #options: LeaderGateOptions;
  readonly #clock: Clock;
  /** Oldest first. */
  readonly #missed = new Map<string, { readonly pass: () => void; readonly atMs: number }>();
  #hasLeadership = false;

  constructor(
    producer: Pick<Producer, 'ensureQueued' | 'enqueueNow' | 'promote'>,
    options: LeaderGateOptions,
  ) {
    this.#producer = producer;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  get isAllowing(): boolean {
    return this.#hasLeadership && this.#options.holdsLease();
  }

  allow(): void {
    this.#hasLeadership = true;
    if (!this.isAllowing) return;
    this.#forgetOld();
    for (const { pass } of this.#missed.values()) pass();
    this.#missed.clear();
  }

  block(): void {
    this.#hasLeadership = false;
  }

  ensureQueued(key: JobKey): void {
    if (this.isAllowing) this.#producer.ensureQueued(key);
  }

  enqueueNow(key: JobKey): void {
    if (this.isAllowing) this.#producer.enqueueNow(key);
    else this.#miss(key, () => this.#producer.enqueueNow(key));
  }

  promote(key: JobKey): void {
    if (this.isAllowing) this.#producer.promote(key);
    else this.#miss(key, () => this.#producer.promote(key));
  }

  #miss(key: JobKey, pass: () => void): void {
    const id = keyId(key);
    this.#missed.delete(id);
    this.#missed.set(id, { pass, atMs: this.#clock.nowMs() });
    this.#forgetOld();
  }

  #forgetOld(): void {
    const oldestMs = this.#clock.nowMs() - this.#options.keepMs;
    for (const [id, { atMs }] of this.#missed) {
      if (atMs >= oldestMs) return;
      this.#missed.delete(id);
    }
  }
}

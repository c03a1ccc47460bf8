import { keyId } from '../queue/contract.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Producer } from '../queue/producer.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Clock } from '../runtime/clock.ts';

export interface GateOptions {
  /** Asked each time: a process that was frozen past its lease's end must not enqueue before it has noticed. */
  readonly holdsLease: () => boolean;
  /** For how long ends of waits are kept while it is closed: as long as nobody may lead between two leaders. */
  readonly keepMs: number;
  readonly clock?: Clock;
}

/** Passes hints to the queue only while the lease is held. Keys that are dropped here are not lost: gaining the lease goes through everything. That leaves waits as
 * they are, so kicks and wake-ups of the last moments are kept and passed on then. */
export class Gate {
  readonly #producer: Pick<Producer, 'touch' | 'wake'>;
  readonly #options: GateOptions;
  readonly #clock: Clock;
  /** Oldest first. */
  readonly #missed = new Map<string, { readonly pass: () => void; readonly atMs: number }>();
  #isOpen = false;

  constructor(producer: Pick<Producer, 'touch' | 'wake'>, options: GateOptions) {
    this.#producer = producer;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  get isOpen(): boolean {
    return this.#isOpen && this.#options.holdsLease();
  }

  open(): void {
    this.#isOpen = true;
    if (!this.isOpen) return;
    this.#forgetOld();
    for (const { pass } of this.#missed.values()) pass();
    this.#missed.clear();
  }

  close(): void {
    this.#isOpen = false;
  }

  touch(key: JobKey, options: { readonly kick?: boolean } = {}): void {
    if (this.isOpen) this.#producer.touch(key, options);
    else if (options.kick === true) this.#miss(key, () => this.#producer.touch(key, options));
  }

  wake(key: JobKey): void {
    if (this.isOpen) this.#producer.wake(key);
    else this.#miss(key, () => this.#producer.wake(key));
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

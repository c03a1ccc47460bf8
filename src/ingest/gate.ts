import type { JobKey } from '../queue/contract.ts';
import type { Producer } from '../queue/producer.ts';

/** Passes hints to the queue only while the lease is held. What is dropped here is not lost: gaining the lease goes through everything. */
export class Gate {
  readonly #producer: Pick<Producer, 'touch'>;
  readonly #holdsLease: () => boolean;
  #isOpen = false;

  /** @param holdsLease  asked each time: a process that was frozen past its lease's end must not enqueue before it has noticed */
  constructor(producer: Pick<Producer, 'touch'>, holdsLease: () => boolean) {
    this.#producer = producer;
    this.#holdsLease = holdsLease;
  }

  get isOpen(): boolean {
    return this.#isOpen && this.#holdsLease();
  }

  open(): void {
    this.#isOpen = true;
  }

  close(): void {
    this.#isOpen = false;
  }

  touch(key: JobKey, options?: { readonly kick?: boolean }): void {
    if (this.isOpen) this.#producer.touch(key, options);
  }
}

import { PRIORITY_LIMIT } from 'bullmq';

/** BullMQ's highest priority number, which runs last; 1 runs first, 0 is no priority. */
const LAST_PRIORITY = PRIORITY_LIMIT;

/** Orders keys fairly over namespaces by virtual time; its ticks are BullMQ's priorities. A
 * namespace's next key is due one tick after its previous key, or after the key that runs now,
 * whichever is later. So a namespace with one key waits for one round, however many keys others
 * have queued. */
export class Fairness {
  /** Virtual time: workers have taken all keys that are due up to this tick. */
  #nowTick = 0;
  #highestTick = 0;
  readonly #lastTicks = new Map<string, number>();

  /** The priority of this namespace's next key. */
  next(namespace: string): number {
    const tick = Math.max(this.#nowTick, this.#lastTicks.get(namespace) ?? 0) + 1;
    this.#lastTicks.set(namespace, tick);
    this.#highestTick = Math.max(this.#highestTick, tick);
    // At the limit keys run in the order of their arrival, so none waits for ever.
    return Math.min(tick, LAST_PRIORITY);
  }

  /** Advances virtual time to the next queued key. Starts again at 0 if no key waits and half of
   * the ticks are used.
   * @param lowest  priority of the key that runs next; undefined if no key waits */
  observe(lowest: number | undefined): void {
    if (lowest === undefined && this.#highestTick > LAST_PRIORITY / 2) {
      this.#nowTick = 0;
      this.#highestTick = 0;
      this.#lastTicks.clear();
      return;
    }
    const tick = lowest === undefined ? this.#highestTick : lowest - 1;
    if (tick <= this.#nowTick) return;
    this.#nowTick = tick;
    this.#highestTick = Math.max(this.#highestTick, tick);
    for (const [namespace, last] of this.#lastTicks) {
      if (last <= tick) this.#lastTicks.delete(namespace);
    }
  }
}

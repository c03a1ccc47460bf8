/** BullMQ's highest priority number; the lowest runs first, 0 would run before all. */
export const LAST_PRIORITY = 2_097_151;

/** Fair order over namespaces by virtual time: a namespace's next key is due one tick after its
 * previous one, or after what runs now, whichever is later. So a namespace with one key waits for
 * one round, however many keys the others have queued, and nobody starves. */
export class Fairness {
  #nowTick = 0;
  #highestTick = 0;
  readonly #lastTicks = new Map<string, number>();

  /** Virtual time: all that is due up to it has been taken by a worker. */
  get nowTick(): number {
    return this.#nowTick;
  }

  /** The priority of this namespace's next key. */
  next(namespace: string): number {
    const tick = Math.max(this.#nowTick, this.#lastTicks.get(namespace) ?? 0) + 1;
    this.#lastTicks.set(namespace, tick);
    this.#highestTick = Math.max(this.#highestTick, tick);
    // At the limit keys run in the order they came, which is still fair to those who wait.
    return Math.min(tick, LAST_PRIORITY);
  }

  /** Gives a tick back that was not used: the key was in the queue already. */
  refund(namespace: string): void {
    const tick = this.#lastTicks.get(namespace);
    if (tick !== undefined) this.#lastTicks.set(namespace, tick - 1);
  }

  /** Moves virtual time on to what is queued.
   * @param lowest priority of the key that runs next; undefined when none waits, so all that was
   *   handed out has been taken */
  observe(lowest: number | undefined): void {
    const tick = lowest === undefined ? this.#highestTick : lowest - 1;
    if (tick <= this.#nowTick) return;
    this.#nowTick = tick;
    this.#highestTick = Math.max(this.#highestTick, tick);
    for (const [namespace, last] of this.#lastTicks) {
      if (last <= tick) this.#lastTicks.delete(namespace);
    }
  }

  /** How far to move the zero before the limit is reached; 0 while there is room. */
  get rebaseTicks(): number {
    return this.#nowTick > LAST_PRIORITY / 2 ? this.#nowTick : 0;
  }

  /** The priorities in Redis were lowered by `ticks`: so is everything here. */
  rebased(ticks: number): void {
    this.#nowTick = Math.max(0, this.#nowTick - ticks);
    this.#highestTick = Math.max(0, this.#highestTick - ticks);
    for (const [namespace, last] of this.#lastTicks)
      this.#lastTicks.set(namespace, Math.max(0, last - ticks));
  }
}

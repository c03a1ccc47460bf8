import { keyId } from './contract.ts';
import type { JobKey } from './contract.ts';

/** A key that should be looked at; `kick`: even if it is waiting to be tried again. */
export interface Hint {
  readonly key: JobKey;
  readonly kick: boolean;
}

/** Hints not yet in Redis, one per key, oldest first. It grows by distinct keys only. */
export class DirtySet {
  readonly #hints = new Map<string, Hint>();

  get size(): number {
    return this.#hints.size;
  }

  add(key: JobKey, kick: boolean): void {
    const id = keyId(key);
    this.#hints.set(id, { key, kick: kick || this.#hints.get(id)?.kick === true });
  }

  /** Removes and returns the oldest hints, `max` at most. */
  take(max: number): Hint[] {
    const taken: Hint[] = [];
    for (const [id, hint] of this.#hints) {
      if (taken.length === max) break;
      taken.push(hint);
      this.#hints.delete(id);
    }
    return taken;
  }

  /** Puts hints back that Redis did not take. */
  giveBack(hints: readonly Hint[]): void {
    for (const { key, kick } of hints) this.add(key, kick);
  }
}

import { keyId, type JobKey } from './contract.ts';

/** What a hint asks for. `ensure`: the key has a job. `now`: the key has a job and the job is not
 * delayed. `promote`: the job is not delayed, if the key has one. */
export type HintKind = 'ensure' | 'now' | 'promote';

/** A key that should be looked at. */
export interface Hint {
  readonly key: JobKey;
  readonly kind: HintKind;
}

/** Hints not yet in Redis, one per key, oldest first. It grows by distinct keys only. */
export class DirtySet {
  readonly #hints = new Map<string, Hint>();

  get size(): number {
    return this.#hints.size;
  }

  add(key: JobKey, kind: HintKind): void {
    const id = keyId(key);
    const before = this.#hints.get(id)?.kind ?? kind;
    // Two different wishes: the key has a job, and the job is not delayed.
    this.#hints.set(id, { key, kind: before === kind ? kind : 'now' });
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
  putBack(hints: readonly Hint[]): void {
    for (const { key, kind } of hints) this.add(key, kind);
  }
}

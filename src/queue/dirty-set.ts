import { type JobKey, keyId } from './contract.ts';

/** What a hint asks for. `ensure`: the key has a job. `now`: the key has a job, and it is not
 * delayed. `promote`: the key's job, if there is one, is not delayed. */
export type HintKind = 'ensure' | 'now' | 'promote';

/** A request to reconcile a key. */
export interface Hint {
  readonly key: JobKey;
  readonly kind: HintKind;
}

/** Hints that Redis has not taken yet, one for each key, oldest first. Builds on contract.ts; the
 * producer fills and empties it. */
export class DirtySet {
  readonly #hints = new Map<string, Hint>();

  get size(): number {
    return this.#hints.size;
  }

  add(key: JobKey, kind: HintKind): void {
    const id = keyId(key);
    const before = this.#hints.get(id)?.kind ?? kind;
    // Two different kinds together ask for a job that is not delayed.
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

  /** Puts back hints that Redis refused. */
  putBack(hints: readonly Hint[]): void {
    for (const { key, kind } of hints) this.add(key, kind);
  }
}

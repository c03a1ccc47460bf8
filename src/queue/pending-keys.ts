import { type JobKey, keyId } from './contract.ts';

/** A request to reconcile a key. `ensure`: the key needs a job. `now`: the key needs a job that is
 * not delayed. `promote`: the key's job, if there is one, must not be delayed. */
export interface Hint {
  readonly key: JobKey;
  readonly kind: 'ensure' | 'now' | 'promote';
}

/** Hints that Redis has not taken yet, one for each key, oldest first. Builds on contract.ts; the
 * producer fills and empties it. */
export class PendingKeys {
  readonly #hints = new Map<string, Hint>();

  get size(): number {
    return this.#hints.size;
  }

  add({ key, kind }: Hint): void {
    const id = keyId(key);
    const earlierKind = this.#hints.get(id)?.kind ?? kind;
    // Two different kinds together ask for a job that is not delayed.
    this.#hints.set(id, { key, kind: earlierKind === kind ? kind : 'now' });
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
}

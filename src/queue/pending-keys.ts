import { keyId, type KeyToQueue } from './contract.ts';

/** A request to reconcile a key. `ensure`: the key needs a job. `now`: the key needs a job that is
 * not delayed. `promote`: the key's job, if there is one, must not be delayed. */
export interface KeyRequest {
  readonly key: KeyToQueue;
  readonly kind: 'ensure' | 'now' | 'promote';
}

/** Requests that Redis has not accepted yet, one for each key, oldest first. */
export class PendingKeys {
  readonly #requests = new Map<string, KeyRequest>();

  get size(): number {
    return this.#requests.size;
  }

  add({ key, kind }: KeyRequest): void {
    const id = keyId(key);
    const earlierKind = this.#requests.get(id)?.kind ?? kind;
    // Two different kinds together mean `now`.
    this.#requests.set(id, { key, kind: earlierKind === kind ? kind : 'now' });
  }

  /** Removes and returns the oldest requests, `max` at most. */
  take(max: number): KeyRequest[] {
    const taken: KeyRequest[] = [];
    for (const [id, request] of this.#requests) {
      if (taken.length === max) break;
      taken.push(request);
      this.#requests.delete(id);
    }
    return taken;
  }
}

import { randomUUID } from 'node:crypto';
import type { IncarnationStore } from '../records/incarnation.ts';
import type { Logger } from '../runtime/log.ts';

/** Keeps the incarnation id of Redis' data outside Redis. */
export interface IncarnationIdStore {
  /** @returns undefined: none was ever written */
  read(): Promise<string | undefined>;
  write(id: string): Promise<void>;
}

export interface IncarnationCheckOptions {
  readonly incarnations: IncarnationStore;
  readonly store: IncarnationIdStore;
  /** Quarantine after a loss: how long no record may be opened. */
  readonly ownershipMs: number;
  readonly newId?: () => string;
  readonly log: Logger;
}

/** Finds out whether Redis lost data (record rule 6). The leader compares the incarnation in Redis
 * with the one that it knows or, at the beginning of its leadership, with the id outside Redis:
 *
 * - no incarnation: first use where no id is stored either, else Redis was emptied;
 * - another id: this is not the Redis that was used before;
 * - a lower sequence: Redis was restored from the past.
 *
 * A first use begins an incarnation; a loss begins one with a quarantine. */
export class IncarnationCheck {
  readonly #options: IncarnationCheckOptions;
  readonly #newId: () => string;
  /** Of the incarnation that this process read or began last. */
  #known: { readonly id: string; readonly sequence: number } | undefined;

  constructor(options: IncarnationCheckOptions) {
    this.#options = options;
    this.#newId = options.newId ?? randomUUID;
  }

  /** Checks once, and advances the sequence. To be called every second while leading.
   * @returns whether data was lost
   * @throws the error of Redis or the API server when one can't be reached: call again */
  async check(): Promise<boolean> {
    const { incarnations, store, log } = this.#options;
    const found = await incarnations.advance(this.#known?.id ?? '');
    if (this.#known !== undefined && found.kind === 'found' && found.id === this.#known.id) {
      if (found.sequence < this.#known.sequence)
        return this.#reportLoss('Redis was restored from the past');
      this.#known = { id: found.id, sequence: found.sequence + 1 };
      return false;
    }
    const storedId = await store.read();
    if (found.kind === 'found' && found.id === storedId) {
      // Begun by an earlier leader, or by this process before a restart.
      this.#known = { id: found.id, sequence: found.sequence };
      return false;
    }
    if (storedId === undefined && found.kind === 'none') {
      await this.#begin(0);
      log.info('first use of this Redis for the driver');
      return false;
    }
    return this.#reportLoss(
      found.kind === 'none'
        ? 'Redis was emptied'
        : 'this Redis is not the one that was used before',
    );
  }

  async #reportLoss(why: string): Promise<boolean> {
    const { ownershipMs, log } = this.#options;
    await this.#begin(ownershipMs);
    log.warn(
      { why, waitMs: ownershipMs },
      'volume records may be lost: nothing is created or deleted until calls under way have ended',
    );
    return true;
  }

  async #begin(quarantineMs: number): Promise<void> {
    const id = this.#newId();
    // Redis first: after a crash in between, the next leader sees a loss, never a first use.
    await this.#options.incarnations.begin({ id, quarantineMs, sequence: 0 });
    await this.#options.store.write(id);
    this.#known = { id, sequence: 0 };
  }
}

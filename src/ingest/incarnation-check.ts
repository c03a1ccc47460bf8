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
  /** How long nothing is opened after a loss. */
  readonly quarantineMs: number;
  readonly newId?: () => string;
  readonly log: Logger;
}

/** Finds out whether Redis lost data (record rule 6). The leader compares the incarnation in Redis
 * with the one that it saw last or, when it begins to lead, with the id outside Redis:
 *
 * - No incarnation in Redis: Redis was emptied; or this is its first use, if there is no id outside
 *   Redis either.
 * - Another id: this is not the Redis that was used before.
 * - A lower sequence: Redis was restored from the past.
 *
 * After a loss, and at first use, a new incarnation begins; after a loss with a quarantine. */
export class IncarnationCheck {
  readonly #options: IncarnationCheckOptions;
  /** The incarnation that this process read or began last. */
  #known: { readonly id: string; readonly sequence: number } | undefined;

  constructor(options: IncarnationCheckOptions) {
    this.#options = options;
  }

  /** Checks once, and advances the sequence. To be called every second while leading.
   * @returns whether data was lost
   * @throws the error of Redis or the API server; the next call tries again */
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
    if (found.kind === 'found')
      return this.#reportLoss('this Redis is not the one that was used before');
    return this.#reportLoss(
      found.withdrawnBy === ''
        ? 'Redis was emptied'
        : `Redis lost its last writes, as ${found.withdrawnBy} noticed`,
    );
  }

  async #reportLoss(why: string): Promise<boolean> {
    const { quarantineMs, log } = this.#options;
    await this.#begin(quarantineMs);
    log.warn(
      { why, waitMs: quarantineMs },
      'volume records may be lost: nothing is created or deleted until calls under way have ended',
    );
    return true;
  }

  async #begin(quarantineMs: number): Promise<void> {
    const { incarnations, store, newId = randomUUID } = this.#options;
    const id = newId();
    // Redis first: after a crash in between, the next leader sees a loss, never a first use.
    await incarnations.begin({ id, quarantineMs, sequence: 0 });
    await store.write(id);
    this.#known = { id, sequence: 0 };
  }
}

import { randomUUID } from 'node:crypto';
import type { IncarnationStore } from '../records/incarnation.ts';
import type { Logger } from '../runtime/log.ts';

/** Where the epoch of Redis' data is kept outside of Redis. */
export interface IncarnationIdStore {
  /** undefined: none was ever written. */
  read(): Promise<string | undefined>;
  write(id: string): Promise<void>;
}

export interface IncarnationCheckOptions {
  readonly incarnations: IncarnationStore;
  readonly store: IncarnationIdStore;
  /** How long nothing may be opened after a loss. */
  readonly ownershipMs: number;
  readonly newId?: () => string;
  readonly log: Logger;
}

/** The leader's knowledge of whether Redis still holds what it held (rule 6 of the volume record).
 */
export class IncarnationCheck {
  readonly #options: IncarnationCheckOptions;
  readonly #newId: () => string;
  /** Of the blessing that this process saw or gave last. */
  #known: { readonly id: string; readonly sequence: number } | undefined;

  constructor(options: IncarnationCheckOptions) {
    this.#options = options;
    this.#newId = options.newId ?? randomUUID;
  }

  /** Looks once, and vouches for Redis anew where it must. Called every second while leading.
   * @returns whether something was lost
   * @throws what Redis or the API server answers when they can't be asked: look again */
  async check(): Promise<boolean> {
    const { incarnations } = this.#options;
    const found = await incarnations.advance(this.#known?.id ?? '');
    if (this.#known !== undefined && found.kind === 'found' && found.id === this.#known.id) {
      if (found.sequence >= this.#known.sequence) {
        this.#known = { id: found.id, sequence: found.sequence + 1 };
        return false;
      }
      return this.#lost('Redis went back in time');
    }
    const stored = await this.#options.store.read();
    if (found.kind === 'found' && found.id === stored) {
      // The blessing of the leader before us, or ours of before a restart.
      this.#known = { id: found.id, sequence: found.sequence };
      return false;
    }
    if (stored === undefined && found.kind === 'none') {
      await this.#begin(0);
      this.#options.log.info('first use of this Redis for the driver');
      return false;
    }
    return this.#lost(
      found.kind === 'none'
        ? 'Redis was emptied'
        : 'this Redis is not the one that was used before',
    );
  }

  async #lost(why: string): Promise<boolean> {
    const { ownershipMs, log } = this.#options;
    await this.#begin(ownershipMs);
    log.warn(
      { why, waitMs: ownershipMs },
      'volume records may be lost: no volume is made or deleted until calls under way have ended',
    );
    return true;
  }

  async #begin(quarantineMs: number): Promise<void> {
    const id = this.#newId();
    // The blessing first: a crash in between shows as a loss to the next leader, never as a first
    // use.
    await this.#options.incarnations.begin({ id, quarantineMs, sequence: 0 });
    await this.#options.store.write(id);
    this.#known = { id, sequence: 0 };
  }
}

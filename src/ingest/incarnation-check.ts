import { randomUUID } from 'node:crypto';
import type { Blessing } from '../records/incarnation.ts';
import type { Logger } from '../runtime/log.ts';

/** Where the epoch of Redis' data is kept outside of Redis. */
export interface EpochStore {
  /** undefined: none was ever written. */
  read(): Promise<string | undefined>;
  write(epoch: string): Promise<void>;
}

export interface RedisHistoryOptions {
  readonly blessing: Blessing;
  readonly store: EpochStore;
  /** How long nothing may be opened after a loss. */
  readonly ownershipMs: number;
  readonly newEpoch?: () => string;
  readonly log: Logger;
}

/** The leader's knowledge of whether Redis still holds what it held (rule 6 of the volume record). */
export class RedisHistory {
  readonly #options: RedisHistoryOptions;
  readonly #newEpoch: () => string;
  /** Of the blessing that this process saw or gave last. */
  #known: { readonly epoch: string; readonly beat: number } | undefined;

  constructor(options: RedisHistoryOptions) {
    this.#options = options;
    this.#newEpoch = options.newEpoch ?? randomUUID;
  }

  /** Looks once, and vouches for Redis anew where it must. Called every second while leading.
   * @returns whether something was lost
   * @throws what Redis or the API server answers when they can't be asked: look again */
  async look(): Promise<boolean> {
    const { blessing } = this.#options;
    const found = await blessing.beat(this.#known?.epoch ?? '');
    if (this.#known !== undefined && found.kind === 'blessed' && found.epoch === this.#known.epoch) {
      if (found.beat >= this.#known.beat) {
        this.#known = { epoch: found.epoch, beat: found.beat + 1 };
        return false;
      }
      return this.#lost('Redis went back in time');
    }
    const stored = await this.#options.store.read();
    if (found.kind === 'blessed' && found.epoch === stored) {
      // The blessing of the leader before us, or ours of before a restart.
      this.#known = { epoch: found.epoch, beat: found.beat };
      return false;
    }
    if (stored === undefined && found.kind === 'unblessed') {
      await this.#bless(0);
      this.#options.log.info('first use of this Redis for the driver');
      return false;
    }
    return this.#lost(found.kind === 'unblessed' ? 'Redis was emptied' : 'this Redis is not the one that was used before');
  }

  async #lost(why: string): Promise<boolean> {
    const { ownershipMs, log } = this.#options;
    await this.#bless(ownershipMs);
    log.warn({ why, waitMs: ownershipMs }, 'volume records may be lost: no volume is made or deleted until calls under way have ended');
    return true;
  }

  async #bless(quarantineMs: number): Promise<void> {
    const epoch = this.#newEpoch();
    // The blessing first: a crash in between shows as a loss to the next leader, never as a first use.
    await this.#options.blessing.bless({ epoch, quarantineMs, beat: 0 });
    await this.#options.store.write(epoch);
    this.#known = { epoch, beat: 0 };
  }
}

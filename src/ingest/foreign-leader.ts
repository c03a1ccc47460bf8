import type { IncarnationStore } from '../records/incarnation.ts';
import type { Logger } from '../runtime/log.ts';

/** Prefix of sutler's identities as holder of a Lease. Upstream's identities are host names, which
 * can't contain '_'. */
export const IDENTITY_PREFIX = 'sutler_';

/** Tells the workers, through Redis, which foreign leader holds the driver's Lease. While one does,
 * as during a change-over, workers finish open records and start nothing new (invariant 10).
 *
 * Every ingest writes the holder again each second, since Redis may have lost it. Only the leader
 * removes it, with each check of the incarnation: while none of ours leads, another may. */
export class ForeignLeader {
  readonly #incarnations: Pick<IncarnationStore, 'setForeignLeader'>;
  readonly #log: Logger;
  #holder: string | undefined;
  #isWriting = false;

  constructor(incarnations: Pick<IncarnationStore, 'setForeignLeader'>, log: Logger) {
    this.#incarnations = incarnations;
    this.#log = log;
  }

  /** To be called every second.
   * @param holder  the identity that holds the Lease; undefined: this process, or none */
  observe(holder: string | undefined): void {
    const isForeign = holder !== undefined && !holder.startsWith(IDENTITY_PREFIX);
    this.#report(isForeign ? holder : undefined);
    if (isForeign && !this.#isWriting) void this.#write(holder);
  }

  #report(holder: string | undefined): void {
    if (holder === this.#holder) return;
    if (holder === undefined) this.#log.info('no other provisioner leads any more');
    else this.#log.warn({ holder }, 'another provisioner leads: only open records are finished');
    this.#holder = holder;
  }

  async #write(holder: string): Promise<void> {
    this.#isWriting = true;
    try {
      await this.#incarnations.setForeignLeader(holder);
    } catch (error) {
      this.#log.debug({ err: error }, 'could not tell the workers who leads; trying again');
    } finally {
      this.#isWriting = false;
    }
  }
}

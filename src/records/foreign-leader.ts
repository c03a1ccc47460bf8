import type { Logger } from '../runtime/log.ts';
import type { IncarnationStore } from './incarnation.ts';

/** Tells the workers, through Redis, which foreign leader holds the driver's Lease. While one does,
 * as during a change-over, workers finish open records and start nothing new (invariant 10).
 *
 * Every ingest names it again each second, and every worker whenever the API server tells that it
 * holds the Lease, since Redis may have lost its name. Only a leader of ours removes the name, with
 * each check of the incarnation: while none of ours leads, another may. */
export class ForeignLeader {
  readonly #incarnations: Pick<IncarnationStore, 'setForeignLeader'>;
  readonly #log: Logger;
  #holder: string | undefined;
  #isWriting = false;

  constructor(incarnations: Pick<IncarnationStore, 'setForeignLeader'>, log: Logger) {
    this.#incarnations = incarnations;
    this.#log = log;
  }

  /** @param holder  the other provisioner that holds the Lease; undefined: none does */
  observe(holder: string | undefined): void {
    this.#report(holder);
    if (holder !== undefined && !this.#isWriting) void this.#write(holder);
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

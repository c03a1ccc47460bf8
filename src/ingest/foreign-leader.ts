import type { IncarnationStore } from '../records/incarnation.ts';
import type { Logger } from '../runtime/log.ts';

/** Prefix of sutler's identities as holder of a Lease. Upstream's identities are host names, which
 * can't contain '_'. */
export const IDENTITY_PREFIX = 'sutler_';

/** Tells the workers, through Redis, which foreign leader holds the driver's Lease. While one does,
 * as during a change-over, workers finish open records and start nothing new (invariant 10). */
export class ForeignLeader {
  readonly #incarnations: Pick<IncarnationStore, 'setForeignLeader'>;
  readonly #log: Logger;
  /** What was written last. Undefined before the first write, which replaces what an earlier ingest
   * may have written. */
  #written: { readonly holder: string | undefined } | undefined;
  #writing: Promise<void> | undefined;

  constructor(incarnations: Pick<IncarnationStore, 'setForeignLeader'>, log: Logger) {
    this.#incarnations = incarnations;
    this.#log = log;
  }

  /** To be called every second; after a failed write the next call writes again.
   * @param holder  the identity that holds the Lease; undefined: this process, or none */
  observe(holder: string | undefined): void {
    const isForeign = holder !== '' && holder?.startsWith(IDENTITY_PREFIX) === false;
    const foreign = isForeign ? holder : undefined;
    if (this.#writing !== undefined) return;
    if (this.#written !== undefined && this.#written.holder === foreign) return;
    this.#writing = this.#write(foreign).finally(() => (this.#writing = undefined));
  }

  async #write(holder: string | undefined): Promise<void> {
    try {
      await this.#incarnations.setForeignLeader(holder);
    } catch (error) {
      this.#log.debug({ err: error }, 'could not tell the workers who leads; trying again');
      return;
    }
    if (holder !== undefined)
      this.#log.warn({ holder }, 'another provisioner leads: only open records are finished');
    else if (this.#written?.holder !== undefined)
      this.#log.info('no other provisioner leads any more');
    this.#written = { holder };
  }
}

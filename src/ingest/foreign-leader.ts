import type { IncarnationStore } from '../records/incarnation.ts';
import type { Logger } from '../runtime/log.ts';

/** What the identities of sutler begin with. No other provisioner's do: upstream's are host names,
 * in which '_' can't stand. */
export const IDENTITY_PREFIX = 'sutler_';

/** Tells the workers when a provisioner that is not sutler holds the driver's Lease, as during a
 * change over and back (design invariant 10). */
export class ForeignLeader {
  readonly #incarnations: Pick<IncarnationStore, 'setForeignLeader'>;
  readonly #log: Logger;
  #told: string | undefined | null = null;
  #telling: Promise<void> | undefined;

  constructor(incarnations: Pick<IncarnationStore, 'setForeignLeader'>, log: Logger) {
    this.#incarnations = incarnations;
    this.#log = log;
  }

  /** @param holder  who holds the Lease as last seen; undefined where it is this process, or nobody
   */
  observe(holder: string | undefined): void {
    const foreign =
      holder === undefined || holder === '' || holder.startsWith(IDENTITY_PREFIX)
        ? undefined
        : holder;
    if (foreign === this.#told || this.#telling !== undefined) return;
    this.#telling = this.#incarnations
      .setForeignLeader(foreign)
      .then(
        () => {
          if (foreign !== undefined)
            this.#log.warn(
              { holder: foreign },
              'another provisioner leads: only open volume records are finished',
            );
          else if (this.#told) this.#log.info('no other provisioner leads any more');
          this.#told = foreign;
        },
        (error: unknown) =>
          this.#log.debug(
            { err: error },
            'could not tell the workers who leads; telling them again',
          ),
      )
      .finally(() => (this.#telling = undefined));
  }
}

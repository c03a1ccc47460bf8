import type { Logger } from '../runtime/log.ts';
import type { DataEpochStore } from './data-epoch.ts';

/** Tells the workers, through Redis, which other provisioner holds the driver's Lease. While one does,
 * as during a change-over, workers finish open records and start nothing new (invariant 10).
 *
 * Every ingest names it again each second, and every worker whenever the API server tells that it
 * holds the Lease, since Redis may have lost its name. Only a leader of ours removes the name, with
 * each check of the data epoch: while none of ours leads, another may. */
export class OtherProvisioner {
  readonly #dataEpochs: Pick<DataEpochStore, 'setOtherProvisioner'>;
  readonly #log: Logger;
  #holder: string | undefined;
  #isWriting = false;

  constructor(dataEpochs: Pick<DataEpochStore, 'setOtherProvisioner'>, log: Logger) {
    this.#dataEpochs = dataEpochs;
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
      await this.#dataEpochs.setOtherProvisioner(holder);
    } catch (error) {
      this.#log.debug({ err: error }, 'could not tell the workers who leads; trying again');
    } finally {
      this.#isWriting = false;
    }
  }
}

import type { VolumeRecords } from '../records/volume-record.ts';
import type { Logger } from '../runtime/log.ts';

interface Options {
  readonly records: Pick<VolumeRecords, 'rewriteLostRecords'>;
  /** Whether Redis belongs to our cluster; otherwise nothing is written. */
  readonly isRedisOurs: () => boolean;
  readonly log: Logger;
}

const PERIOD_MS = 2_000;

/** Writes records again that this process left open and that Redis lost (record rule 6): every two
 * seconds, and when `rewrite` is called. */
export class LostRecords {
  readonly #options: Options;
  readonly #timer = setInterval(() => void this.rewrite(), PERIOD_MS);

  constructor(options: Options) {
    this.#options = options;
  }

  /** Never rejects: after a failure the next period tries again. */
  async rewrite(): Promise<void> {
    const { records, isRedisOurs, log } = this.#options;
    if (!isRedisOurs()) return;
    try {
      const rewritten = await records.rewriteLostRecords();
      if (rewritten.length > 0)
        log.warn({ records: rewritten.length }, 'wrote volume records again that Redis had lost');
    } catch (error) {
      log.debug({ err: error }, 'the open records could not be checked; trying again');
    }
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

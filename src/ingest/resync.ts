import type { JobKey } from '../queue/contract.ts';
import type { Logger } from '../runtime/log.ts';
import type { LeaderGate } from './leader-gate.ts';
import type { RefusedVolume, Watcher } from './watcher.ts';

export interface ResyncOptions {
  readonly watcher: Pick<Watcher, 'outstanding' | 'refused'>;
  readonly gate: Pick<LeaderGate, 'ensureQueued' | 'isAllowing'>;
  /** Reads the job of each open record. */
  readonly openJobs: () => Promise<ReadonlyMap<string, JobKey>>;
  readonly onRefused: (refused: RefusedVolume) => void;
  readonly log: Logger;
}

/** Goes through everything that needs a job and makes sure that it has one. */
export class Resync {
  readonly #options: ResyncOptions;

  constructor(options: ResyncOptions) {
    this.#options = options;
  }

  /** Enqueues every object that needs a job, and every open record: its claim may be gone, so that
   * only the record still names the volume. Does nothing while this ingest does not lead. */
  async run(reason: string): Promise<void> {
    const { watcher, gate, openJobs, onRefused, log } = this.#options;
    if (!gate.isAllowing) return;
    let count = 0;
    for (const key of watcher.outstanding()) {
      gate.ensureQueued(key);
      count += 1;
    }
    try {
      for (const key of (await openJobs()).values()) gate.ensureQueued(key);
    } catch (error) {
      log.warn(
        { err: error },
        'the open volume records could not be listed; the next resync tries again',
      );
    }
    for (const refused of watcher.refused()) onRefused(refused);
    log.info({ reason, count }, 'enqueued everything outstanding');
  }

  /** Every key that needs a job now; none while this ingest does not lead. */
  outstanding(): Iterable<JobKey> {
    const { watcher, gate } = this.#options;
    return gate.isAllowing ? watcher.outstanding() : [];
  }
}

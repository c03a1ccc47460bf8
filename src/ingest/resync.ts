import type { JobKey } from '../queue/contract.ts';
import type { Logger } from '../runtime/log.ts';
import type { LeaderGate } from './leader-gate.ts';
import type { Watcher } from './watcher.ts';

export interface ResyncOptions {
  readonly watcher: Pick<Watcher, 'outstanding' | 'reportRefused'>;
  readonly gate: Pick<LeaderGate, 'ensureQueued' | 'isAllowing'>;
  /** Reads the job of each open record. */
  readonly openJobs: () => Promise<ReadonlyMap<string, JobKey>>;
  readonly log: Logger;
}

/** Makes sure that everything that needs a job has one. */
export class Resync {
  readonly #options: ResyncOptions;

  constructor(options: ResyncOptions) {
    this.#options = options;
  }

  /** Enqueues every object that needs a job, and the job of every open record, since its claim may
   * be gone. Does nothing while this ingest does not lead. */
  async run(reason: string): Promise<void> {
    const { watcher, gate, openJobs, log } = this.#options;
    if (!gate.isAllowing) return;
    let count = 0;
    for (const key of watcher.outstanding()) {
      gate.ensureQueued(key);
      count += 1;
    }
    try {
      for (const key of (await openJobs()).values()) gate.ensureQueued(key);
    } catch (error) {
      log.warn({ err: error }, 'could not list open volume records; the next resync tries again');
    }
    watcher.reportRefused();
    log.info({ reason, count }, 'enqueued everything outstanding');
  }

  /** Every key that needs a job now; none while this ingest does not lead. */
  outstanding(): Iterable<JobKey> {
    const { watcher, gate } = this.#options;
    return gate.isAllowing ? watcher.outstanding() : [];
  }
}

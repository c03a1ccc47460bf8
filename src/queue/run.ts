import type { Job } from 'bullmq';
import type { RedisPlace } from '../redis/key-prefix.ts';
import type { JobFacts, JobKey } from './contract.ts';
import type { Marking } from './doubt.ts';
import { readStatus, type RunStatus } from './status.ts';

/** What a run is given besides its key. */
export interface Run extends Marking {
  /** Aborted on shutdown, or when the lock of this job is lost: then start no more calls. It must
   * not cancel a call that was sent. */
  readonly signal: AbortSignal;
  /** How the key's last run ended; undefined when it ended with `done`, or when nothing is stored.
   * Sends a command, so call it only to report a reason. Never rejects. */
  readonly lastStatus: () => Promise<RunStatus | undefined>;
  /** How much longer, in milliseconds, an infeasible back-off of this scope lasts; 0: not. Sends a
   * command too. Never rejects. */
  readonly infeasibleBackoffMs: (scope: string) => Promise<number>;
  /** When the job was added, Unix ms: some moments after the object needed it. */
  readonly queuedMs: number;
  /** How many runs the job has had, this one included. */
  readonly count: number;
  /** What the job says besides its key. */
  readonly facts: JobFacts;
}

/** What a run may ask about the key's last run; reads the status once at most. */
export function lastRun(
  { redis, prefix, driver }: RedisPlace,
  { attemptsStarted }: Job,
  key: JobKey,
): Pick<Run, 'lastStatus' | 'infeasibleBackoffMs'> {
  let reading: Promise<RunStatus | undefined> | undefined;
  const lastStatus = (): Promise<RunStatus | undefined> =>
    // The first run of a job has no status: a job that completes deletes it.
    (reading ??=
      attemptsStarted <= 1
        ? Promise.resolve(undefined)
        : readStatus(redis, { prefix, driver, key }).catch(() => undefined));
  return {
    lastStatus,
    infeasibleBackoffMs: async (scope) => {
      const infeasible = (await lastStatus())?.infeasible;
      return infeasible?.scope === scope ? Math.max(0, infeasible.untilMs - Date.now()) : 0;
    },
  };
}

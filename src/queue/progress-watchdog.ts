import { performance } from 'node:perf_hooks';
import type { Redis } from 'ioredis';
import type { Logger } from '../runtime/log.ts';
import { countTakeableJobs } from './queue-calls.ts';

/** Reports a worker that takes nothing although jobs wait and it has room. */
export interface ProgressWatchdog {
  /** Why the worker should be restarted, in one line for /healthz. */
  readonly stuck: string | undefined;
  /** To be called when a job was taken. */
  noteProgress(): void;
  stop(): void;
}

const CHECKS_PER_LIMIT = 6;

/** Checks a few times within the limit; asks Redis only when nothing was taken since the last
 * check. */
export function startProgressWatchdog(options: {
  /** For how long the worker may take nothing. */
  readonly limitMs: number;
  readonly redis: Redis;
  readonly prefix: string;
  readonly queue: string;
  /** Whether the worker would take a job: it is connected, not paused, and has room. */
  readonly isFree: () => boolean;
  readonly log: Logger;
}): ProgressWatchdog {
  const { redis, limitMs, log, queue, isFree } = options;
  let sinceMs: number | undefined;
  let hasTaken = false;
  let stuck: string | undefined;
  let checking: Promise<void> | undefined;

  const check = async (): Promise<void> => {
    const hadTaken = hasTaken;
    hasTaken = false;
    if (hadTaken || !isFree()) return reset();
    const count = await countTakeableJobs(redis, options).catch(() => 0);
    // A job that was taken while Redis was asked counts as progress too.
    if (hasTaken || count === 0 || !isFree()) return reset();
    sinceMs ??= performance.now();
    const forMs = performance.now() - sinceMs;
    if (forMs < limitMs) return;
    if (stuck === undefined)
      log.error(
        { queue, waiting: count },
        'the worker takes nothing although jobs wait: restart it',
      );
    stuck =
      `the worker of ${queue} has taken nothing for ${Math.round(forMs / 1000)} s ` +
      `although ${count} jobs wait and it has room: restart it`;
  };
  const reset = (): void => {
    if (stuck !== undefined) log.info({ queue }, 'the worker takes jobs again');
    sinceMs = undefined;
    stuck = undefined;
  };
  const timer = setInterval(() => {
    checking ??= check().finally(() => (checking = undefined));
  }, limitMs / CHECKS_PER_LIMIT);
  return {
    get stuck() {
      return stuck;
    },
    noteProgress: () => (hasTaken = true),
    stop: () => clearInterval(timer),
  };
}

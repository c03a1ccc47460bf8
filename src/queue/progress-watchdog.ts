import { performance } from 'node:perf_hooks';
import type { Redis } from 'ioredis';
import { defineScript } from '../redis/script.ts';
import type { Logger } from '../runtime/log.ts';
import { COUNT_TAKEABLE, queueRoot } from './bullmq-layout.ts';

/** Reports a worker that takes nothing although jobs wait and it has room. Builds on
 * bullmq-layout.ts. */
export interface ProgressWatchdog {
  /** Why the worker should be restarted, in one line for /healthz. */
  readonly stuck: string | undefined;
  /** To be called when a job was taken. */
  progressed(): void;
  stop(): void;
}

export interface ProgressWatchdogOptions {
  /** For how long the worker may take nothing. */
  readonly limitMs: number;
  readonly redis: Redis;
  readonly prefix: string;
  readonly queue: string;
  /** Whether this worker would take one: connected, not paused, with room. */
  readonly isFree: () => boolean;
  readonly log: Logger;
}

const CHECKS_PER_LIMIT = 6;

/** KEYS: 1 root of the queue's keys. ARGV: 1 now in Unix ms.
 * Answer: how many jobs could be taken; 0 while the queue is paused or at one of its limits. */
const countTakeable = defineScript(`${COUNT_TAKEABLE}
local root, nowMs = KEYS[1], ARGV[1]
return countTakeable(root, nowMs)
`);

/** Checks a few times within the limit; asks Redis only when nothing was taken since the last
 * check. */
export function startProgressWatchdog(options: ProgressWatchdogOptions): ProgressWatchdog {
  const { redis, limitMs, log, queue } = options;
  const keys = [queueRoot(options.prefix, queue)];
  let sinceMs: number | undefined;
  let hasTaken = false;
  let stuck: string | undefined;
  let isChecking = false;

  const check = async (): Promise<void> => {
    const hadTaken = hasTaken;
    hasTaken = false;
    if (hadTaken || !options.isFree()) return reset();
    const count = Number(await countTakeable.run(redis, keys, [Date.now()]).catch(() => 0));
    // A job that was taken during the question counts as progress too.
    if (hasTaken || count === 0 || !options.isFree()) return reset();
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
    if (isChecking) return;
    isChecking = true;
    void check().finally(() => (isChecking = false));
  }, limitMs / CHECKS_PER_LIMIT);
  return {
    get stuck() {
      return stuck;
    },
    progressed: () => (hasTaken = true),
    stop: () => clearInterval(timer),
  };
}

import { performance } from 'node:perf_hooks';

import type { Redis } from 'ioredis';

import type { Logger } from '../runtime/log.ts';
import { keyPrefix } from '../redis/key-names.ts';
import { defineScript } from '../redis/script.ts';

/** Notices a worker that takes nothing although work waits and it has room. */
export interface ProgressWatchdog {
  /** One line for /healthz: a restart is the way out. */
  readonly stuck: string | undefined;
  /** A job was taken. */
  progressed(): void;
  stop(): void;
}

export interface ProgressWatchdogOptions {
  /** How long it may take nothing. */
  readonly limitMs: number;
  readonly queue: string;
  /** Jobs that could be taken now; rejects when Redis can't be asked. */
  readonly waiting: () => Promise<number>;
  /** Whether this worker would take one: connected, not paused, with room. */
  readonly isFree: () => boolean;
  readonly log: Logger;
}

const LOOKS_PER_LIMIT = 6;

/** Looks only while nothing is taken, a few times within the limit. */
export function startProgressWatchdog(options: ProgressWatchdogOptions): ProgressWatchdog {
  const { limitMs, log, queue } = options;
  let sinceMs: number | undefined;
  let taken = false;
  let stuck: string | undefined;
  let isLooking = false;

  const look = async (): Promise<void> => {
    const hadTaken = taken;
    taken = false;
    if (hadTaken || !options.isFree()) return forget();
    const count = await options.waiting().catch(() => 0);
    // What was taken while we asked is progress too.
    if (taken || count === 0 || !options.isFree()) return forget();
    sinceMs ??= performance.now();
    const forMs = performance.now() - sinceMs;
    if (forMs < limitMs) return;
    if (stuck === undefined)
      log.error(
        { queue, waiting: count },
        'this worker takes nothing although work waits: it should be restarted',
      );
    stuck = `the worker of ${queue} has taken nothing for ${Math.round(forMs / 1000)} s although ${count} jobs wait and it has room: restart it`;
  };
  const forget = (): void => {
    if (stuck !== undefined) log.info({ queue }, 'this worker takes jobs again');
    sinceMs = undefined;
    stuck = undefined;
  };
  const timer = setInterval(() => {
    if (isLooking) return;
    isLooking = true;
    void look().finally(() => (isLooking = false));
  }, limitMs / LOOKS_PER_LIMIT);
  return {
    get stuck() {
      return stuck;
    },
    progressed: () => (taken = true),
    stop: () => clearInterval(timer),
  };
}

/** KEYS: meta, wait, prioritized, delayed, active, limiter. ARGV: now in ms. Returns how many jobs
 * any worker may take now. */
const count = defineScript(`
local meta = redis.call('HMGET', KEYS[1], 'paused', 'concurrency')
if meta[1] or redis.call('EXISTS', KEYS[6]) == 1 then return 0 end
if meta[2] and redis.call('LLEN', KEYS[5]) >= tonumber(meta[2]) then return 0 end
return redis.call('LLEN', KEYS[2]) + redis.call('ZCARD', KEYS[3]) + redis.call('ZCOUNT', KEYS[4], '-inf', tonumber(ARGV[1]) * 4096)
`);

const PARTS = ['meta', 'wait', 'prioritized', 'delayed', 'active', 'limiter'];

/** Jobs of a queue that could be taken now: none while the queue is paused or at one of its limits.
 */
export async function takeableJobs(
  redis: Redis,
  place: { readonly prefix: string; readonly queue: string },
  nowMs: number,
): Promise<number> {
  const root = `${keyPrefix(place.prefix)}:${place.queue}:`;
  const keys = PARTS.map((part) => root + part);
  return Number(await count.run(redis, keys, [nowMs]));
}

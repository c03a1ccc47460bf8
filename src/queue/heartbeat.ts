import { performance } from 'node:perf_hooks';
import type { RedisLink } from '../redis/connection.ts';
import { describeRedisError } from '../redis/error-text.ts';
import { REDIS_NOW } from '../redis/named-script.ts';
import type { Logger } from '../runtime/log.ts';
import { QUEUE_LUA, queueRoot } from './bullmq-layout.ts';
import { heartbeatKey, type QueuePlace } from './key-names.ts';

/** Writes to Redis each second that a worker of the queue is alive. */
export interface Heartbeat {
  /** Why Redis does not answer or takes no writes, in one line; undefined while it does both. */
  readonly trouble: string | undefined;
  /** Writes the heartbeat now.
   * @throws what Redis answers when it takes no writes */
  write(): Promise<void>;
  stop(): void;
}

const PERIOD_MS = 1_000;
/** A longer gap between two heartbeats means that no worker was alive. */
const LONGEST_GAP_MS = 2_500;
/** When an answer takes longer, Redis is frozen or cut off, although it is connected. */
const LONGEST_ANSWER_MS = 2_500;

/** Writes the time, and makes all delayed jobs due later by the time in which no worker lived.
 * KEYS: 1 root of the queue's keys, 2 the last heartbeat: its time by Redis' clock and by the clock
 * of the worker that wrote it. ARGV: 1 this worker's time. Answer: that gap in ms, or 0. The gap is
 * the shorter of the two: jobs are due by the workers' clocks, so they must not be delayed because
 * only Redis' clock was set forward, or because the clocks of two workers differ. */
const WRITE = `${QUEUE_LUA}${REDIS_NOW}
local root, heartbeat, workerNow = KEYS[1], KEYS[2], tonumber(ARGV[1])
local last, lastOfWorker = string.match(redis.call('GET', heartbeat) or '', '^(%d+) ?(%d*)$')
last = tonumber(last) or now
local gapMs = math.min(now - last, workerNow - (tonumber(lastOfWorker) or last))
redis.call('SET', heartbeat, string.format('%.0f %.0f', now, workerNow))
if gapMs <= ${LONGEST_GAP_MS} then return 0 end
extendDelays(root, gapMs)
return gapMs
`;

/** Extends delays by the time in which no worker was alive. Otherwise all jobs that came due in
 * that time would run at once when the first worker starts, and a restart of everything would send
 * the driver a burst of calls. The heartbeat also finds a Redis that takes no writes or does not
 * answer. Builds on bullmq-layout.ts. */
export function startHeartbeat(
  link: RedisLink,
  { prefix, queue }: QueuePlace,
  log: Logger,
): Heartbeat {
  const keys = [queueRoot(prefix, queue), heartbeatKey(prefix, queue)];
  let refusal: string | undefined;
  let pending: { readonly sinceMs: number; readonly written: Promise<void> } | undefined;
  let wasSilent = false;

  const send = async (): Promise<void> => {
    try {
      // EVAL, not EVALSHA: a Redis that was restarted does not have the script, and a worker could
      // take jobs before the script is sent again.
      const gapMs = Number(await link.redis.eval(WRITE, keys.length, ...keys, Date.now()));
      if (refusal !== undefined)
        log.info({ redis: link.address, queue }, 'Redis takes writes again');
      refusal = undefined;
      if (gapMs > 0)
        log.info(
          { queue, gapMs },
          'no worker was alive for a while: delayed jobs wait that much longer',
        );
    } catch (error) {
      if (link.trouble === undefined) {
        const cause = error instanceof Error ? error : new Error(String(error));
        const trouble = describeRedisError(link.address, cause);
        if (trouble !== refusal)
          log.warn({ redis: link.address, queue, trouble }, 'Redis takes no writes; trying again');
        refusal = trouble;
      }
      throw error;
    }
  };
  const write = (): Promise<void> => {
    pending ??= {
      sinceMs: performance.now(),
      written: send().finally(() => (pending = undefined)),
    };
    return pending.written;
  };
  const writeQuietly = (): void => void write().catch(() => undefined);
  const describeSilence = (): string | undefined => {
    const silentMs = pending === undefined ? 0 : performance.now() - pending.sinceMs;
    return silentMs > LONGEST_ANSWER_MS
      ? `Redis at ${link.address} has not answered for ${Math.round(silentMs / 1000)} s; ` +
          'waiting for it'
      : undefined;
  };
  const timer = setInterval(() => {
    if (link.trouble === undefined) writeQuietly();
    const isSilent = describeSilence() !== undefined;
    if (isSilent && !wasSilent)
      log.warn({ redis: link.address, queue }, 'Redis does not answer; waiting for it');
    wasSilent = isSilent;
  }, PERIOD_MS);
  // After a reconnect the client sends queued commands first. So the heartbeat reaches Redis before
  // the worker takes any job that came due in between.
  link.redis.on('close', writeQuietly);
  return {
    get trouble() {
      return describeSilence() ?? refusal;
    },
    write,
    stop() {
      clearInterval(timer);
      link.redis.off('close', writeQuietly);
    },
  };
}

import { performance } from 'node:perf_hooks';
import type { RedisLink } from '../redis/connection.ts';
import { describeRedisError } from '../redis/error-text.ts';
import type { Logger } from '../runtime/log.ts';
import { EXTEND_DELAYS, queueRoot } from './bullmq-layout.ts';
import { heartbeatKey } from './key-names.ts';

/** Writes to Redis each second that a worker of the queue lives. */
export interface QueueHeartbeat {
  /** Why Redis does not answer or takes no writes, in one line; undefined when it does. */
  readonly trouble: string | undefined;
  /** Writes the heartbeat now.
   * @throws what Redis answers when it takes no writes */
  write(): Promise<void>;
  stop(): void;
}

export interface HeartbeatOptions {
  readonly link: RedisLink;
  readonly prefix: string;
  readonly queue: string;
  readonly log: Logger;
}

const PERIOD_MS = 1_000;
/** A longer gap between two heartbeats means that no worker lived meanwhile. */
const LONGEST_GAP_MS = 2_500;
/** A longer silence means that Redis is frozen or cut off, although the connection stands. */
const LONGEST_ANSWER_MS = 2_500;

/** Writes the time, and makes all delayed jobs due later by the time in which no worker lived.
 * KEYS: 1 root of the queue's keys, 2 time of the last heartbeat. ARGV: 1 longest gap in ms.
 * Answer: that time in ms, or 0. */
const WRITE = `${EXTEND_DELAYS}
local root, heartbeat, longestGapMs = KEYS[1], KEYS[2], tonumber(ARGV[1])
local time = redis.call('TIME')
local nowMs = time[1] * 1000 + math.floor(time[2] / 1000)
local lastMs = tonumber(redis.call('GET', heartbeat) or '') or nowMs
redis.call('SET', heartbeat, string.format('%.0f', nowMs))
local gapMs = nowMs - lastMs
if gapMs <= longestGapMs then return 0 end
extendDelays(root, gapMs)
return gapMs
`;

/** Stops the clock of delayed jobs while no worker lives. Otherwise everything that came due
 * meanwhile would run at once when the first worker starts, and a restart of everything would send
 * the driver more calls than it got before. The heartbeat also finds a Redis that takes no writes
 * or does not answer. Builds on bullmq-layout.ts. */
export function startHeartbeat(options: HeartbeatOptions): QueueHeartbeat {
  const { link, log, prefix, queue } = options;
  const keys = [queueRoot(prefix, queue), heartbeatKey(prefix, queue)];
  let refusal: string | undefined;
  let pending: { readonly sinceMs: number; readonly written: Promise<void> } | undefined;
  let wasSilent = false;

  const send = async (): Promise<void> => {
    try {
      // EVAL, not EVALSHA: after a restart Redis does not know the digest, and while the script is
      // sent a second time a worker could take jobs.
      const gapMs = Number(await link.redis.eval(WRITE, keys.length, ...keys, LONGEST_GAP_MS));
      if (refusal !== undefined)
        log.info({ redis: link.address, queue }, 'Redis takes writes again');
      refusal = undefined;
      if (gapMs > 0)
        log.info(
          { queue, gapMs },
          'no worker lived for a while: delayed jobs wait that much longer',
        );
    } catch (error) {
      if (link.trouble === undefined) noteRefusal(error);
      throw error;
    }
  };
  const noteRefusal = (error: unknown): void => {
    const cause = error instanceof Error ? error : new Error(String(error));
    const trouble = describeRedisError(link.address, cause);
    if (trouble !== refusal)
      log.warn({ redis: link.address, queue, trouble }, 'Redis takes no writes; trying again');
    refusal = trouble;
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
  // The client sends queued commands first when it is connected again. So the heartbeat reaches
  // Redis before the worker takes any job that came due meanwhile.
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

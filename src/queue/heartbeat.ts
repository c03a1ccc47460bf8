import { performance } from 'node:perf_hooks';

import type { Logger } from '../runtime/log.ts';
import { describeRedisError } from '../redis/error-text.ts';
import type { RedisLink } from '../redis/connection.ts';
import { keyPrefix } from '../redis/key-names.ts';
import { heartbeatKey } from './key-names.ts';

/** Says each second that a worker of the queue lives. */
export interface QueueHeartbeat {
  /** What keeps Redis from answering or from being written to, in one line. */
  readonly trouble: string | undefined;
  /** One beat, now.
   * @throws what Redis answers when it takes no writes */
  check(): Promise<void>;
  stop(): void;
}

export interface HeartbeatOptions {
  readonly link: RedisLink;
  readonly prefix: string;
  readonly queue: string;
  readonly log: Logger;
}

const PERIOD_MS = 1_000;
/** A gap longer than this means that no worker lived meanwhile. */
const ASLEEP_MS = 2_500;
/** Redis answers within milliseconds; past this it is frozen or cut off, though the connection
 * stands. */
const SILENT_MS = 2_500;

/** KEYS: time of the last beat, delayed set. ARGV: longest gap in ms. Moves all waits on by the gap
 * in which no worker lived. Returns that gap in ms, or 0. */
const BEAT = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local before = tonumber(redis.call('GET', KEYS[1]) or '')
redis.call('SET', KEYS[1], string.format('%.0f', now))
local gap = before and now - before or 0
if gap <= tonumber(ARGV[1]) then return 0 end
local waiting = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for i = 1, #waiting, 2 do
  redis.call('ZADD', KEYS[2], string.format('%.0f', tonumber(waiting[i + 1]) + gap * 4096), waiting[i])
end
return gap
`;

/** The clock of waits stands still while no worker lives. Otherwise all that came due meanwhile
 * would run at once when the first one starts, so a restart of everything would meet the driver
 * with more calls than it got before. It is also what finds a Redis that takes no writes, or does
 * not answer at all. */
export function startHeartbeat(options: HeartbeatOptions): QueueHeartbeat {
  const { link, log, queue } = options;
  const keys = [
    heartbeatKey(options.prefix, queue),
    `${keyPrefix(options.prefix)}:${queue}:delayed`,
  ] as const;
  let refusal: string | undefined;
  let pending: { readonly sinceMs: number; readonly beat: Promise<void> } | undefined;

  const beat = async (): Promise<void> => {
    try {
      // Never by its digest: after a restart of Redis it would have to be sent a second time, and a
      // fetch might get in between.
      const gapMs = Number(await link.redis.eval(BEAT, keys.length, ...keys, ASLEEP_MS));
      if (refusal !== undefined)
        log.info({ redis: link.address, queue }, 'Redis takes writes again');
      refusal = undefined;
      if (gapMs > 0)
        log.info({ queue, gapMs }, 'no worker lived for a while: waits go on where they stood');
    } catch (error) {
      const text = describeRedisError(
        link.address,
        error instanceof Error ? error : new Error(String(error)),
      );
      if (link.trouble === undefined && text !== refusal)
        log.warn(
          { redis: link.address, queue, trouble: text },
          'Redis takes no writes; trying again',
        );
      if (link.trouble === undefined) refusal = text;
      throw error;
    }
  };
  const check = (): Promise<void> => {
    pending ??= { sinceMs: performance.now(), beat: beat().finally(() => (pending = undefined)) };
    return pending.beat;
  };
  const beatQuietly = (): void => void check().catch(() => undefined);
  let wasSilent = false;
  const timer = setInterval(() => {
    if (link.trouble === undefined) beatQuietly();
    const isSilent = silence() !== undefined;
    if (isSilent && !wasSilent)
      log.warn({ redis: link.address, queue }, 'Redis does not answer; waiting for it');
    wasSilent = isSilent;
  }, PERIOD_MS);
  // Stands in line from the moment of the loss, so that it is the first thing that Redis hears:
  // before anything that comes due is fetched.
  link.redis.on('close', beatQuietly);
  const silence = (): string | undefined => {
    const silentMs = pending === undefined ? 0 : performance.now() - pending.sinceMs;
    return silentMs > SILENT_MS
      ? `Redis at ${link.address} has not answered for ${Math.round(silentMs / 1000)} s; waiting for it`
      : undefined;
  };
  return {
    get trouble() {
      return silence() ?? refusal;
    },
    check,
    stop() {
      clearInterval(timer);
      link.redis.off('close', beatQuietly);
    },
  };
}

import type { Redis } from 'ioredis';
import { askRedis } from '../records/ask-redis.ts';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import { type Clock, timerMs } from '../runtime/clock.ts';
import { writeLimitKey } from './keys.ts';

/* The rate at which CSIStorageCapacity objects are written, one limit for all workers together:
 * `burst` at once, then `perSecond`. Redis keeps the time at which the bucket would be full again.
 * Each write moves it on by one interval, and waits for as much of it as exceeds the burst. */

const reserveScript = defineNamedScript({
  keys: ['fullAt'],
  args: { intervalMs: 'number', burst: 'number' },
  answers: { reserved: { waitMs: 'number' } },
  lua: `${REDIS_NOW}
local atMs = math.max(tonumber(redis.call('GET', fullAt) or '0'), now) + intervalMs
redis.call('SET', fullAt, string.format('%.3f', atMs), 'PX', math.ceil(atMs - now) + 1000)
return {'reserved', 'waitMs', math.max(0, math.ceil(atMs - now - burst * intervalMs))}
`,
});

/** Waits until an object may be written, or until the signal aborts.
 * @throws RecordsUnavailable while Redis can't be reached */
export type WriteLimit = (signal: AbortSignal) => Promise<void>;

/** The limit of one driver's objects.
 * @param o.perSecond  0 or less: no limit */
export function redisWriteLimit(
  redis: Redis,
  o: {
    readonly prefix: string;
    readonly driver: string;
    readonly perSecond: number;
    readonly burst: number;
    readonly clock: Clock;
  },
): WriteLimit {
  const { perSecond, clock } = o;
  if (perSecond <= 0) return () => Promise.resolve();
  const keys = { fullAt: writeLimitKey(o.prefix, o.driver) };
  const args = { intervalMs: 1000 / perSecond, burst: Math.max(1, o.burst) };
  return async (signal) => {
    const { waitMs } = await askRedis(reserveScript.run(redis, keys, args));
    await clock.sleep(timerMs(waitMs), signal);
  };
}

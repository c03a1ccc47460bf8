import type { Redis } from 'ioredis';
import { askRedis } from '../redis/ask-redis.ts';
import { type DriverPlace, keyPrefix } from '../redis/key-prefix.ts';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import { type Clock, timerMs } from '../runtime/clock.ts';

/* When each value of capacity was last read from the driver, by Redis' clock. A value that has not
 * changed is not written to its object, so the object does not tell. */

const noteScript = defineNamedScript({
  keys: ['times'],
  args: { item: 'text' },
  answers: { ok: {} },
  lua: `${REDIS_NOW}
redis.call('HSET', times, item, now)
return {'ok'}
`,
});

const agesScript = defineNamedScript({
  keys: ['times'],
  args: {},
  answers: { ages: { nowMs: 'number', fields: 'list' } },
  lua: `${REDIS_NOW}
return {'ages', 'nowMs', now, 'fields', redis.call('HGETALL', times)}
`,
});

export type ReadTimes = ReturnType<typeof redisReadTimes>;

/** The times of one driver's values. All methods reject while Redis can't be reached. */
export function redisReadTimes(redis: Redis, prefix: string, driver: string) {
  const times = `${keyPrefix(prefix)}:capacity-times:${driver}`;
  return {
    /** The value was read just now. */
    async note(itemId: string): Promise<void> {
      await noteScript.run(redis, { times }, { item: itemId });
    },
    /** How long ago each value was read, in ms, by item id. */
    async agesMs(): Promise<ReadonlyMap<string, number>> {
      const { nowMs, fields } = await agesScript.run(redis, { times }, {});
      const ages = new Map<string, number>();
      for (let i = 0; i < fields.length; i += 2)
        ages.set(fields[i] ?? '', Math.max(0, nowMs - Number(fields[i + 1])));
      return ages;
    },
    /** Drops values that are not published any more. */
    async forget(itemIds: readonly string[]): Promise<void> {
      if (itemIds.length > 0) await redis.hdel(times, ...itemIds);
    },
  };
}

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
  o: DriverPlace & {
    readonly perSecond: number;
    readonly burst: number;
    readonly clock: Clock;
  },
): WriteLimit {
  const { perSecond, clock } = o;
  if (perSecond <= 0) return () => Promise.resolve();
  const keys = { fullAt: `${keyPrefix(o.prefix)}:capacity-writes:${o.driver}` };
  const args = { intervalMs: 1000 / perSecond, burst: Math.max(1, o.burst) };
  return async (signal) => {
    const { waitMs } = await askRedis(reserveScript.run(redis, keys, args));
    await clock.sleep(timerMs(waitMs), signal);
  };
}

import type { Redis } from 'ioredis';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import { readTimesKey } from './keys.ts';

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
  const times = readTimesKey(prefix, driver);
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

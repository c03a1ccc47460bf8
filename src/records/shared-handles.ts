import type { Redis } from 'ioredis';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import { sharedHandlesKey } from './key-names.ts';
import { askRedis } from './ask-redis.ts';

/* The shared handles of a driver: those that two PVs or more name, normally none. One ingest
 * publishes what it sees; a run that is about to send DeleteVolume looks here (invariant 7). The
 * key expires soon after its publisher has fallen silent, so that nobody relies on an old view.
 *
 * Fields of the hash:
 * publisher    the ingest that publishes; another one takes over when the key has expired
 * version      of what it has published, in its own count
 * handle <id>  names of the PVs that share this handle, one a line; MAX_SHARERS at most */

/** How old a published view may be. A publisher renews it every 1.5 s. */
const MAX_VIEW_AGE_MS = 5_000;

/** How many PVs of one handle are published. Thousands may stand for one shared file system. */
export const MAX_SHARERS = 20;

/** Publishes a view, or renews the one that Redis has.
 *
 * Args      handles  the whole view, JSON; '' if it is the one of this version
 *           asOfMs   a time at which the publisher saw all PVs, by Redis' clock; 0 = none yet
 * Answers   published
 *           outdated   asOfMs is too long ago, as in a process that was frozen
 *           unknown    Redis does not have this version: send the whole view
 *           taken      another ingest publishes
 *           each with Redis' time, which may be the next asOfMs */
const publishScript = defineNamedScript({
  keys: ['sharedKey'],
  args: { publisher: 'text', version: 'number', handles: 'text', asOfMs: 'number' },
  answers: {
    published: { nowMs: 'number' },
    outdated: { nowMs: 'number' },
    unknown: { nowMs: 'number' },
    taken: { nowMs: 'number' },
  },
  lua: `${REDIS_NOW}
local current, published = unpack(redis.call('HMGET', sharedKey, 'publisher', 'version'))
if current and current ~= publisher then return {'taken', 'nowMs', now} end
local leftMs = math.min(asOfMs + ${MAX_VIEW_AGE_MS} - now, ${MAX_VIEW_AGE_MS})
if leftMs <= 0 then return {'outdated', 'nowMs', now} end
if handles ~= '' then
  redis.call('DEL', sharedKey)
  redis.call('HSET', sharedKey, 'publisher', publisher, 'version', version)
  for id, names in pairs(cjson.decode(handles)) do
    redis.call('HSET', sharedKey, 'handle ' .. id, names)
  end
elseif tonumber(published) ~= version then
  return {'unknown', 'nowMs', now}
end
redis.call('PEXPIRE', sharedKey, leftMs)
return {'published', 'nowMs', now}
`,
});

/** The PVs by each handle that several of them name. */
export type HandleSharers = ReadonlyMap<string, readonly string[]>;

export type SharedHandles = ReturnType<typeof redisSharedHandles>;

/** The shared handles of one driver. */
export function redisSharedHandles(redis: Redis, prefix: string, driver: string) {
  const keys = { sharedKey: sharedHandlesKey(prefix, driver) };
  return {
    /** Publishes a view; see publishScript. Rejects while Redis can't be reached.
     * @param view  `handles` undefined: Redis should have this version already */
    publish(view: {
      readonly publisher: string;
      readonly version: number;
      readonly handles: HandleSharers | undefined;
      readonly asOfMs: number;
    }) {
      const { handles } = view;
      const lines = [...(handles ?? [])].map(
        ([id, names]) => [id, names.slice(0, MAX_SHARERS).join('\n')] as const,
      );
      const text = handles === undefined ? '' : JSON.stringify(Object.fromEntries(lines));
      return publishScript.run(redis, keys, { ...view, handles: text });
    },
    /** The names of PVs with this handle, up to MAX_SHARERS; empty if it is not shared.
     * @returns undefined if no ingest has published within the last seconds
     * @throws RecordsUnavailable */
    sharersOf: async (handle: string): Promise<readonly string[] | undefined> => {
      const fields = redis.hmget(keys.sharedKey, 'publisher', `handle ${handle}`);
      const [publisher, names] = await askRedis(fields);
      if (typeof publisher !== 'string') return undefined;
      return typeof names === 'string' ? names.split('\n') : [];
    },
  };
}

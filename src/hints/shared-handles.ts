import { askRedis } from '../redis/ask-redis.ts';
import { driverKey, type RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import { handleHash, type VolumeIdentity } from '../volumes/handles.ts';

/* The shared handles of a driver: those that two PVs or more name, normally none. One ingest
 * publishes what it sees; a run that is about to send DeleteVolume looks here (invariant 6). The
 * key expires soon after its publisher has fallen silent, so that nobody relies on an old view.
 *
 * Only an ingest that watches PVs publishes. Where none does (--event-source=webhook), the run
 * lists all PVs instead.
 *
 * Fields of the hash of what is published. Earlier versions of sutler published handles as they
 * are, in fields of other names (publisher, handle), so that neither takes the other's view for its
 * own:
 * by           the ingest that publishes; another one takes over when the view has expired
 * version      of what it has published, in its own count
 * until        when it expires, by Redis' clock: Redis' own expiry is longer where its clock
 *              was set back
 * hash <hash>  names of the PVs that may share the handle of this hash, one a line; MAX_SHARERS at
 *              most */

/** How old a published view may be. A publisher renews it every 1.5 s. */
export const MAX_VIEW_AGE_MS = 5_000;

/** How many PVs of one handle are published. Thousands may stand for one shared file system. */
export const MAX_SHARERS = 20;

/** Publishes a view, or renews the one that Redis has.
 *
 * Args      handles  the whole view, JSON; '' if it is the one of this version
 *           asOfMs   a time at which the publisher saw all PVs, by Redis' clock; 0 = none
 * Answers   published
 *           outdated   asOfMs is too long ago, as in a process that was frozen
 *           unknown    Redis does not have this version: send the whole view
 *           taken      another ingest publishes
 *           each with Redis' clock, which may be the next asOfMs */
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
local current, published, untilMs =
  unpack(redis.call('HMGET', sharedKey, 'by', 'version', 'until'))
local isCurrent = current and tonumber(untilMs or math.huge) > now
if isCurrent and current ~= publisher then return {'taken', 'nowMs', now} end
local leftMs = math.min(asOfMs + ${MAX_VIEW_AGE_MS} - now, ${MAX_VIEW_AGE_MS})
if leftMs <= 0 then return {'outdated', 'nowMs', now} end
if handles ~= '' then
  redis.call('DEL', sharedKey)
  redis.call('HSET', sharedKey, 'by', publisher, 'version', version)
  for hash, names in pairs(cjson.decode(handles)) do
    redis.call('HSET', sharedKey, 'hash ' .. hash, names)
  end
elseif current ~= publisher or tonumber(published) ~= version then
  return {'unknown', 'nowMs', now}
end
redis.call('HSET', sharedKey, 'until', now + leftMs)
redis.call('PEXPIRE', sharedKey, leftMs)
return {'published', 'nowMs', now}
`,
});

/** Answers with the names of PVs that may have this handle, one a line, or `unknown`. */
const lookScript = defineNamedScript({
  keys: ['sharedKey'],
  args: { hash: 'text' },
  answers: { unknown: {}, known: { names: 'text' } },
  lua: `${REDIS_NOW}
local publisher, untilMs, names =
  unpack(redis.call('HMGET', sharedKey, 'by', 'until', 'hash ' .. hash))
if publisher and tonumber(untilMs or math.huge) > now then
  return {'known', 'names', names or ''}
end
return {'unknown'}
`,
});

export type SharedHandles = ReturnType<typeof redisSharedHandles>;

/** The shared handles of one driver. */
export function redisSharedHandles(place: RedisPlace) {
  const { redis } = place;
  const keys = { sharedKey: driverKey(place, 'shared') };
  return {
    /** Publishes a view; see publishScript. Rejects while Redis can't be reached.
     * @param view  `handles`: the names of the PVs by the hash of each shared handle; undefined:
     *              Redis should have this version already */
    publish(view: {
      readonly publisher: string;
      readonly version: number;
      readonly handles: ReadonlyMap<number, readonly string[]> | undefined;
      readonly asOfMs: number;
    }) {
      const { handles } = view;
      const lines = [...(handles ?? [])].map(
        ([hash, names]) => [hash, names.slice(0, MAX_SHARERS).join('\n')] as const,
      );
      const text = handles === undefined ? '' : JSON.stringify(Object.fromEntries(lines));
      return publishScript.run(redis, keys, { ...view, handles: text });
    },
    /** The names of PVs that may have this handle, up to MAX_SHARERS; empty if it is not shared.
     * @returns undefined if no ingest has published within the last seconds
     * @throws RedisUnavailable */
    sharersOf: async (volume: VolumeIdentity): Promise<readonly string[] | undefined> => {
      const hash = String(handleHash(volume));
      const answer = await askRedis(lookScript.run(redis, keys, { hash }));
      if (answer.kind === 'unknown') return undefined;
      return answer.names === '' ? [] : answer.names.split('\n');
    },
  };
}

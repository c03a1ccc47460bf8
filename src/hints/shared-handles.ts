import { askRedis } from '../redis/ask-redis.ts';
import { redisNowMs } from '../redis/clock.ts';
import { driverKey, type RedisPlace } from '../redis/key-prefix.ts';
import { isFields, parseJson } from '../runtime/json.ts';
import { handleHash, type VolumeIdentity } from '../volumes/handles.ts';

/* The shared handles of a driver: those that two PVs or more name, normally none. The leader
 * publishes what it sees; a run that is about to send DeleteVolume looks here (invariant 6), and
 * lists all PVs itself where nothing is published. It is JSON, the names of PVs by the hash of the
 * handle that they may share, and expires soon after the leader has fallen silent, so that nobody
 * relies on an old view. */

/** How old a published view may be. The leader renews it every 1.5 s. */
export const MAX_VIEW_AGE_MS = 5_000;

/** How many PVs of one handle are published. Thousands may stand for one shared file system. */
export const MAX_SHARERS = 20;

export type SharedHandles = ReturnType<typeof redisSharedHandles>;

/** The shared handles of one driver. */
export function redisSharedHandles(place: RedisPlace) {
  const { redis } = place;
  const key = driverKey(place, 'shared');
  return {
    /** Publishes a view. Redis drops it at once if it is older than MAX_VIEW_AGE_MS by then, as one
     * of a process that was frozen. Rejects while Redis can't be reached.
     * @param handles  names of PVs by the hash of each shared handle
     * @param asOfMs  a time at which all PVs were seen, by Redis' clock; 0: none, so nothing is
     *   published
     * @returns Redis' clock before that, Unix ms */
    async publish(
      handles: ReadonlyMap<number, readonly string[]>,
      asOfMs: number,
    ): Promise<number> {
      const lines = [...handles].map(([hash, names]) => [hash, names.slice(0, MAX_SHARERS)]);
      const view = JSON.stringify(Object.fromEntries(lines));
      const [nowMs] = await Promise.all([
        redisNowMs(redis),
        asOfMs > 0 ? redis.set(key, view, 'PXAT', asOfMs + MAX_VIEW_AGE_MS) : undefined,
      ]);
      return nowMs;
    },
    /** The names of PVs that may have this handle, up to MAX_SHARERS; empty if it is not shared.
     * @returns undefined if nothing was published within the last seconds
     * @throws RedisUnavailable */
    async sharersOf(volume: VolumeIdentity): Promise<readonly string[] | undefined> {
      const text = await askRedis(redis.get(key));
      const view = text === null ? undefined : parseJson(text);
      if (!isFields(view)) return undefined;
      const names = view[handleHash(volume)];
      return Array.isArray(names) ? names.map(String) : [];
    },
  };
}

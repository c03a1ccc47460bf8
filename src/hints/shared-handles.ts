import { askRedis } from '../redis/ask-redis.ts';
import { redisNowMs } from '../redis/clock.ts';
import { driverKey, type RedisPlace } from '../redis/key-prefix.ts';
import { isFields, parseJson } from '../runtime/json.ts';
import { handleHash, type VolumeIdentity } from '../volumes/handles.ts';

/* The shared handles of a driver: handles that two PVs or more name, normally none. The leader
 * publishes them; a run reads them before it sends DeleteVolume (invariant 6), and lists all PVs
 * itself if nothing is published. The view is JSON, the names of PVs by the hash of the handle that
 * they may share. It expires 5 s after the leader's last look, so that no run uses an old view. */

/** How old a published view may be. The leader renews it every 1.5 s. */
export const MAX_VIEW_AGE_MS = 5_000;

/** Most PVs of a handle that are published. Thousands of PVs may name one shared file system. */
export const MAX_SHARERS = 20;

export type SharedHandles = ReturnType<typeof redisSharedHandles>;

/** The shared handles of one driver. */
export function redisSharedHandles(place: RedisPlace) {
  const { redis } = place;
  const key = driverKey(place, 'shared');
  return {
    /** Publishes a view. Redis drops it at once if it is older than MAX_VIEW_AGE_MS, for example
     * because this process was frozen. Rejects while Redis can't be reached.
     * @param handles  names of PVs by the hash of each shared handle
     * @param asOfMs  when all PVs were seen, by Redis' clock; 0: never, so nothing is published
     * @returns Redis' clock before the write, Unix ms */
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
     * @returns undefined if no view is published
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

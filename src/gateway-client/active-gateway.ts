import { type DriverPlace, keyPrefix, type RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';

/* The active gateway of a driver, a hash in Redis. The replicas of a driver have separate locks, so
 * only one at a time gets controller calls. The leader writes the hash, and does so again if Redis
 * loses its data. The script that marks a job before a call also reads the hash (queue/run.ts).
 *
 * Fields of the hash:
 * - endpoint: the active gateway
 * - fence: number of changes so far. A leader names a gateway only if this number is the one it has
 *   read, so only one of two leaders succeeds.
 * - openAt: no call begins before this time of Redis' clock, because calls at the previous gateway
 *   may be under way. */

/** Returns the keys for scripts that read the active gateway. */
export function gatewayKeys({ prefix, driver }: DriverPlace) {
  return { gatewayKey: `${keyPrefix(prefix)}:gateway:${driver}` };
}

/** Lua: the hash as locals. */
export const GATEWAY_LUA = `
local active, fence, openAt = unpack(redis.call('HMGET', gatewayKey, 'endpoint', 'fence', 'openAt'))
openAt = tonumber(openAt or 0)
`;

/** Changes the active gateway, unless another leader has changed it since `version`. Never shortens
 * a wait that is under way. */
const nameScript = defineNamedScript({
  keys: ['gatewayKey'],
  args: { version: 'number', endpoint: 'text', waitMs: 'number' },
  answers: { changed: {}, named: {} },
  lua: `${REDIS_NOW}${GATEWAY_LUA}
if tonumber(fence or 0) ~= version then return {'changed'} end
redis.call('HSET', gatewayKey, 'endpoint', endpoint, 'fence', version + 1,
  'openAt', math.max(now + waitMs, openAt))
return {'named'}
`,
});

/** The active gateway as Redis has it. */
export interface NamedGateway {
  /** '' if none is named yet, or Redis has lost its data. */
  readonly endpoint: string;
  /** Grows by one with each change; 0 if there was none. */
  readonly version: number;
}

export type ActiveGateway = ReturnType<typeof redisActiveGateway>;

/** Reads and names the active gateway of a driver. Rejects while Redis can't be reached. */
export function redisActiveGateway(place: RedisPlace) {
  const { redis } = place;
  const keys = gatewayKeys(place);
  return {
    async read(): Promise<NamedGateway> {
      const [endpoint, fence] = await redis.hmget(keys.gatewayKey, 'endpoint', 'fence');
      return { endpoint: endpoint ?? '', version: Number(fence ?? 0) };
    },
    /** Names another gateway. `version`: as read. `waitMs`: how long calls at the previous gateway
     * may still be under way, 0 if there are none.
     * @returns false if another leader has named one since `version` was read */
    async name(choice: NamedGateway & { readonly waitMs: number }): Promise<boolean> {
      return (await nameScript.run(redis, keys, choice)).kind === 'named';
    },
  };
}

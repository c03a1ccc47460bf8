import { type DriverPlace, keyPrefix, type RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';

/* The active gateway of a driver, a hash in Redis. The replicas of a driver have separate locks, so
 * only one of them at a time gets controller calls. The leading ingest writes the hash; the script
 * that marks a job before a call reads it in the same step (queue/run.ts). After a loss of Redis'
 * data the leader names a gateway again.
 *
 * Fields of the hash:
 * endpoint  the active gateway
 * fence     number of changes so far. A leader names a gateway only if this number is still the
 *           one it has read, so that of two leaders only one succeeds.
 * openAt    until when calls at the gateway before may be under way, by Redis' clock; no call
 *           begins before */

/** The keys of the scripts that read the active gateway. */
export function gatewayKeys({ prefix, driver }: DriverPlace) {
  return { gatewayKey: `${keyPrefix(prefix)}:gateway:${driver}` };
}

/** Lua: the hash as locals. */
export const GATEWAY_LUA = `
local active, fence, openAt = unpack(redis.call('HMGET', gatewayKey, 'endpoint', 'fence', 'openAt'))
openAt = tonumber(openAt or 0)
`;

/** Changes the active gateway, unless another leader did so since `version`. A wait that is not
 * over yet is never shortened. */
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
  /** '' = none was named yet, or Redis was emptied. */
  readonly endpoint: string;
  /** Grows by one with each change; 0 = none yet. */
  readonly version: number;
}

export type ActiveGateway = ReturnType<typeof redisActiveGateway>;

/** The active gateway of a driver. Both methods reject while Redis can't be reached. */
export function redisActiveGateway(place: RedisPlace) {
  const { redis } = place;
  const keys = gatewayKeys(place);
  return {
    async read(): Promise<NamedGateway> {
      const [endpoint, fence] = await redis.hmget(keys.gatewayKey, 'endpoint', 'fence');
      return { endpoint: endpoint ?? '', version: Number(fence ?? 0) };
    },
    /** Names another one. `version`: as read. `waitMs`: how long calls at the previous gateway may
     * still be under way, 0 where there are none.
     * @returns false where another leader named one since `version` was read */
    async name(choice: NamedGateway & { readonly waitMs: number }): Promise<boolean> {
      return (await nameScript.run(redis, keys, choice)).kind === 'named';
    },
  };
}

import type { Redis } from 'ioredis';
import { activeGatewayKey } from './key-names.ts';
import { defineScript } from '../redis/script.ts';

/* Replicas of a driver have locks of their own in their own processes, so one of them at a time
 * gets controller calls. Which one a Redis hash says, written by the leading ingest; the open
 * scripts of the volume record read it in the same step that opens a record, so that what a run is
 * given and what is written can't differ.
 *
 * KEYS[1]  the hash: endpoint, since  the active gateway, and Redis' ms when it was named
 *                    fence            counts the namings; a change names the one it has seen, so
 *                                     that of two leaders only one writes
 *                    previous         the gateway before, '' when there was none
 *                    openAt           Redis' ms until when calls at `previous` may be under way:
 *                                     before, nothing is opened */

const NOW = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
`;

const FIELDS = `redis.call('HMGET', KEYS[1], 'endpoint', 'fence', 'since', 'previous', 'openAt')`;

/** Answers {endpoint, fence, since, previous, msUntilOpenAt}, '' and 0 where nothing is named. */
const readScript = defineScript(`${NOW}
local f = ${FIELDS}
return {f[1] or '', f[2] or '0', f[3] or '0', f[4] or '', tostring(math.max(0, tonumber(f[5] or '0') - now))}
`);

/** ARGV fence, endpoint, waitMs. Answers {'changed'} where somebody named one meanwhile, else
 * {'named', fence}. A wait that is not over yet is never shortened. */
const nameScript = defineScript(`${NOW}
local f = ${FIELDS}
if (f[2] or '0') ~= ARGV[1] then return {'changed'} end
local fence = tostring(tonumber(ARGV[1]) + 1)
local openAt = math.max(now + tonumber(ARGV[3]), tonumber(f[5] or '0'))
redis.call('HSET', KEYS[1], 'endpoint', ARGV[2], 'since', tostring(now), 'fence', fence, 'previous', f[1] or '', 'openAt', tostring(openAt))
return {'named', fence}
`);

/** What Redis says. */
export interface NamedGateway {
  /** '' = none was named yet, or Redis was emptied. */
  readonly endpoint: string;
  /** Grows by one with each naming; 0 = none yet. */
  readonly version: number;
  /** Unix ms by Redis' clock. */
  readonly sinceMs: number;
  /** '' = there was none before. */
  readonly previous: string;
  /** How long calls at the previous one may still be under way, and nothing is opened. */
  readonly waitMs: number;
}

/** Which gateway of a driver gets calls. Both methods reject while Redis can't be reached. */
export interface ActiveGateway {
  read(): Promise<NamedGateway>;
  /** Names another one.
   * @param version   as read
   * @param waitMs  how long calls at the one before may still be under way; 0 where there are none
   * @returns whether it was written: false where somebody else named one since `version` was read
   */
  name(choice: {
    readonly version: number;
    readonly endpoint: string;
    readonly waitMs: number;
  }): Promise<boolean>;
}

/** The active gateway of one driver in Redis. */
export function redisActiveGateway(redis: Redis, prefix: string, driver: string): ActiveGateway {
  const keys = [activeGatewayKey(prefix, driver)];
  return {
    async read() {
      // Both scripts answer a list of texts, as their heads say.
      const [endpoint = '', fence, since, previous = '', wait] = (await readScript.run(
        redis,
        keys,
        [],
      )) as readonly string[];
      return {
        endpoint,
        version: Number(fence),
        sinceMs: Number(since),
        previous,
        waitMs: Number(wait),
      };
    },
    async name({ version, endpoint, waitMs }) {
      const [word] = (await nameScript.run(redis, keys, [
        version,
        endpoint,
        waitMs,
      ])) as readonly string[];
      return word === 'named';
    },
  };
}

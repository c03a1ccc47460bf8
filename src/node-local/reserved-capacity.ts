import type { Redis } from 'ioredis';
import { askRedis } from '../redis/ask-redis.ts';
import { type DriverPlace, driverKey } from '../redis/key-prefix.ts';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';

/* The room on nodes that claims have reserved, while their volumes are being created. A driver's
 * GetCapacity says how much room a node has, but not how much of it other claims are about to take.
 *
 * A volume must be counted at least once at every moment: by the driver, whose answer lacks its
 * bytes from some moment of its creation on, or here. Its reservation begins before its
 * CreateVolume is sent, and ends after the driver has answered. So a volume whose reservation ended
 * BEFORE the driver was asked for its capacity is in the driver's answer. One whose reservation
 * ended after that may be in it or not: its bytes are counted here, too, as `made` since then.
 * Whoever asks the driver reads `made` first, and says what it was when it reserves.
 *
 *   room = capacity - reserved now - (made now - made before the driver was asked)
 *
 * That is never too much. It may be too little while volumes are being created, since such a volume
 * may be counted twice; then the claim waits until they are made.
 *
 * Fields of the hash. Numbers are bytes:
 * version      grows when there may be more room: a volume was deleted
 * sum NODE     reserved on the node
 * made NODE    total of all reservations on the node that have ended
 * claim UID    "BYTES NODE", one reservation */

/** Reservations end here by themselves, for runs that died: then `made` grows as if the volume was
 * made, because it may be. A whole day after the last change everything is forgotten. */
const BEGIN = `${REDIS_NOW}
local function text(number) return string.format('%.0f', number) end
local function bytesAt(field) return tonumber(redis.call('HGET', roomKey, field) or 0) end
-- Ends a reservation.
local function finish(uid)
  local found = redis.call('HGET', roomKey, 'claim ' .. uid)
  if not found then return false end
  local bytes, node = string.match(found, '^(%d+) (.*)$')
  redis.call('HSET', roomKey,
    'sum ' .. node, text(math.max(0, bytesAt('sum ' .. node) - bytes)),
    'made ' .. node, text(bytesAt('made ' .. node) + bytes))
  redis.call('HDEL', roomKey, 'claim ' .. uid)
  redis.call('ZREM', expiryKey, uid)
  return true
end
for _, uid in ipairs(redis.call('ZRANGEBYSCORE', expiryKey, '-inf', now)) do finish(uid) end
`;

const KEYS = ['roomKey', 'expiryKey'] as const;

/** Answers with what is reserved on each node and what was made there, in turn. */
const look = defineNamedScript({
  keys: KEYS,
  args: { nodes: 'text' },
  answers: { seen: { version: 'text', bytes: 'list' } },
  lua: `${BEGIN}
local bytes = {}
for node in string.gmatch(nodes, '[^\\n]+') do
  bytes[#bytes + 1] = text(bytesAt('sum ' .. node))
  bytes[#bytes + 1] = text(bytesAt('made ' .. node))
end
return {'seen', 'version', redis.call('HGET', roomKey, 'version') or '0', 'bytes', bytes}
`,
});

/** Reserves room for a claim, if there is enough. An earlier reservation of the claim ends.
 * Answers  full   there is not, as far as is known
 *          stale  `made` is lower than it was: Redis lost it, so the driver has to be asked
 *                 again */
const reserve = defineNamedScript({
  keys: KEYS,
  args: {
    uid: 'text',
    node: 'text',
    bytes: 'number',
    capacity: 'number',
    madeBefore: 'number',
    ttlMs: 'number',
  },
  answers: { reserved: {}, full: {}, stale: {} },
  lua: `${BEGIN}
finish(uid)
local sum, made = bytesAt('sum ' .. node), bytesAt('made ' .. node)
if made < madeBefore then return {'stale'} end
if capacity - sum - (made - madeBefore) < bytes then return {'full'} end
redis.call('HSET', roomKey, 'claim ' .. uid, text(bytes) .. ' ' .. node,
  'sum ' .. node, text(sum + bytes))
redis.call('ZADD', expiryKey, now + ttlMs, uid)
redis.call('EXPIRE', roomKey, 86400 + math.ceil(ttlMs / 1000))
redis.call('EXPIRE', expiryKey, 86400 + math.ceil(ttlMs / 1000))
return {'reserved'}
`,
});

const release = defineNamedScript({
  keys: KEYS,
  args: { uid: 'text' },
  answers: { ok: {} },
  lua: `${BEGIN}
finish(uid)
return {'ok'}
`,
});

/** What claims are about to take on a node. */
export interface NodeReservations {
  readonly reservedBytes: number;
  /** Total of all reservations that have ended. */
  readonly madeBytes: number;
}

/** Reservations on all nodes at a moment. */
export interface ReservationView {
  /** Changes when there may be more room. */
  readonly version: string;
  readonly byNode: ReadonlyMap<string, NodeReservations>;
}

export type ReservedCapacity = ReturnType<typeof redisReservedCapacity>;

/** The reservations of one driver's claims. Methods throw RedisUnavailable while Redis can't be
 * reached. Bytes above 2^53 are rounded.
 * @param ttlMs how long a reservation lasts at most */
export function redisReservedCapacity(
  redis: Redis,
  { prefix, driver }: DriverPlace,
  ttlMs: number,
) {
  const place = { prefix, driver };
  const keys = { roomKey: driverKey(place, 'room'), expiryKey: driverKey(place, 'room-expiry') };
  return {
    /** To be called before the driver is asked for its capacity. */
    async look(nodes: readonly string[]): Promise<ReservationView> {
      const { version, bytes } = await askRedis(look.run(redis, keys, { nodes: nodes.join('\n') }));
      const byNode = nodes.map((node, i): [string, NodeReservations] => [
        node,
        { reservedBytes: Number(bytes[2 * i]), madeBytes: Number(bytes[2 * i + 1]) },
      ]);
      return { version, byNode: new Map(byNode) };
    },
    /** Reserves room, if a capacity that the driver has told suffices.
     * @param claim.madeBefore  NodeReservations.madeBytes from before the driver was asked */
    async reserve(claim: {
      readonly uid: string;
      readonly node: string;
      readonly bytes: number;
      readonly capacity: number;
      readonly madeBefore: number;
    }): Promise<'reserved' | 'full' | 'stale'> {
      return (await askRedis(reserve.run(redis, keys, { ...claim, ttlMs: Math.ceil(ttlMs) }))).kind;
    },
    /** The claim's volume is made, or none is being made. Nothing happens without a reservation. */
    async release(uid: string): Promise<void> {
      await askRedis(release.run(redis, keys, { uid }));
    },
    /** A volume was deleted, so there may be more room. */
    async grown(): Promise<void> {
      await askRedis(redis.hincrby(keys.roomKey, 'version', 1));
    },
    async version(): Promise<string> {
      return (await askRedis(redis.hget(keys.roomKey, 'version'))) ?? '0';
    },
  };
}

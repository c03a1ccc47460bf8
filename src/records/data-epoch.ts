import type { Redis } from 'ioredis';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript } from '../redis/named-script.ts';
import { dataEpochKey } from './key-names.ts';
import { CLOCK_ARGS, ClockMover, MOVE_CLOCK, RECORD_NOW } from './record-clock.ts';

/* The epoch of Redis' data (record rule 6). The leader also keeps its id on the Lease, and
 * compares the two every second. A Redis without an id was never used, or was emptied; another id
 * is that of another Redis. A sequence that went back shows that Redis was restored from a backup,
 * or restarted without its last writes; so that the next leader sees that too, the renewals of the
 * Lease say how far it had come, and in which process of Redis.
 *
 * Fields of the hash:
 * epoch            id of the data epoch
 * beat             sequence, which the leader advances every second
 * quarantineUntil  until when nothing is opened, by the record clock
 * clock, clockAt   the record clock; see record-clock.ts
 * foreign          the other provisioner, from when it is seen until one of ours leads
 * leader           random id that the last leader of ours has while it leads
 * transitions      how often the Lease had changed its holder when that leader began
 * term             the id of the first leader of ours since another provisioner may have led: what
 *                  a run read before the term began proves nothing in it
 * drain            set while this installation is drained, see drain.ts
 * withdrawnBy      the process that found a loss and removed the id; see record-scripts.ts */

/** `isAfterOther`: another provisioner led, or may have led, since the last term of one of ours;
 * answered once. */
const LEADER_ANSWER = { isAfterOther: 'flag', isDrained: 'flag' } as const;

const advanceScript = defineNamedScript({
  keys: ['dataEpochKey'],
  args: { id: 'text', leader: 'text', transitions: 'number', ...CLOCK_ARGS },
  answers: {
    none: { withdrawnBy: 'text', ...LEADER_ANSWER },
    found: { id: 'text', sequence: 'number', server: 'text', ...LEADER_ANSWER },
  },
  lua: `${MOVE_CLOCK}
local found, sequence, withdrawnBy, foreign, drain = unpack(redis.call(
  'HMGET', dataEpochKey, 'epoch', 'beat', 'withdrawnBy', 'foreign', 'drain'))
local term, lastLeader, lastTransitions = unpack(redis.call(
  'HMGET', dataEpochKey, 'term', 'leader', 'transitions'))
if foreign then redis.call('HDEL', dataEpochKey, 'foreign') end
local isAfterOther, isDrained = foreign and '1' or '0', drain and '1' or '0'
if not found then
  return {'none', 'withdrawnBy', withdrawnBy or '', 'isAfterOther', isAfterOther,
    'isDrained', isDrained}
end
if leader ~= '' and leader ~= lastLeader then
  redis.call('HSET', dataEpochKey, 'leader', leader, 'transitions', transitions)
  local since = transitions - (tonumber(lastTransitions) or -1)
  if transitions > 0 and since ~= 0 and since ~= 1 then isAfterOther = '1' end
  -- The Lease went from one leader of ours to the next: nobody led between them.
  local isSameTerm = term and not foreign and transitions > 0 and since == 1
  if not isSameTerm then redis.call('HSET', dataEpochKey, 'term', leader) end
end
if found == id then redis.call('HINCRBY', dataEpochKey, 'beat', 1) end
local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
return {'found', 'id', found, 'sequence', sequence or 0, 'server', server,
  'isAfterOther', isAfterOther, 'isDrained', isDrained}
`,
});

const withdrawScript = defineNamedScript({
  keys: ['dataEpochKey'],
  args: { id: 'text' },
  answers: { ok: {} },
  lua: `
if redis.call('HGET', dataEpochKey, 'epoch') == id then
  redis.call('HDEL', dataEpochKey, 'epoch')
end
return {'ok'}
`,
});

const beginScript = defineNamedScript({
  keys: ['dataEpochKey'],
  args: { id: 'text', quarantineMs: 'number', sequence: 'number' },
  answers: { ok: {} },
  lua: `${RECORD_NOW}
local quarantineUntil = quarantineMs > 0 and now + quarantineMs or 0
redis.call('HSET', dataEpochKey, 'epoch', id, 'quarantineUntil', quarantineUntil,
  'beat', sequence)
redis.call('HDEL', dataEpochKey, 'withdrawnBy')
return {'ok'}
`,
});

const quarantineScript = defineNamedScript({
  keys: ['dataEpochKey'],
  args: {},
  answers: { left: { leftMs: 'number' } },
  lua: `${RECORD_NOW}
local quarantineUntil = tonumber(redis.call('HGET', dataEpochKey, 'quarantineUntil') or 0)
return {'left', 'leftMs', math.max(0, quarantineUntil - now)}
`,
});

/** How long nothing may be opened, since Redis lost data; 0: at once. */
export async function quarantineLeftMs(place: RedisPlace): Promise<number> {
  const keys = { dataEpochKey: dataEpochKey(place.prefix, place.driver) };
  return (await quarantineScript.run(place.redis, keys, {})).leftMs;
}

/** What the leader learns from Redis, each second, about who may create and delete. */
export interface LeaderFacts {
  /** Another provisioner led, or may have led, since the last term of one of ours. */
  readonly isAfterOther: boolean;
  readonly isDrained: boolean;
}

/** An ingest from when it begins to lead until it ends. */
export interface Leader {
  /** Random. */
  readonly id: string;
  /** How often the Lease had changed its holder by then; 0: not known. */
  readonly transitions: number;
}

const NO_LEADER: Leader = { id: '', transitions: 0 };

export type DataEpochStore = ReturnType<typeof redisDataEpochStore>;

/** The epoch of Redis' data for one driver, as the leader reads and writes it. Methods reject
 * while Redis can't be reached. */
export function redisDataEpochStore(redis: Redis, prefix: string, driver: string) {
  const keys = { dataEpochKey: dataEpochKey(prefix, driver) };
  const clock = new ClockMover();
  return {
    /** Reads the data epoch, advances its sequence if its id is the given one, and moves the
     * record clock on. For the leader, beside whom there is no other provisioner: forgets the one
     * that was named, and begins a term if one may have led.
     * @returns the sequence as it was before, and the id of the process of Redis, '' where Redis
     *   does not tell; or `none`, with the process that withdrew the data epoch because it found a
     *   loss, '' where none did */
    advance: (id: string, { id: leader, transitions }: Leader = NO_LEADER) =>
      clock.move((elapsedMs) =>
        advanceScript.run(redis, keys, { id, leader, transitions, elapsedMs }),
      ),
    /** Ends the data epoch of that id, so that nothing is opened until one begins. */
    async withdraw(id: string): Promise<void> {
      await withdrawScript.run(redis, keys, { id });
    },
    /** Confirms what Redis holds from now on, as a new data epoch. `quarantineMs`: how long
     * nothing may be opened; 0 for a first installation. */
    async begin(dataEpoch: {
      readonly id: string;
      readonly quarantineMs: number;
      readonly sequence: number;
    }): Promise<void> {
      await beginScript.run(redis, keys, dataEpoch);
    },
    /** Names the other provisioner that holds the driver's Lease, so that nothing new is opened
     * here until one of ours leads. */
    async setOtherProvisioner(holder: string): Promise<void> {
      await redis.hset(keys.dataEpochKey, 'foreign', holder);
    },
  };
}

import type { Redis } from 'ioredis';
import { incarnationKey } from './key-names.ts';
import { defineScript } from '../redis/script.ts';

/* Rule 6 of the volume record: whoever leads vouches for what Redis holds. The blessing names the
 * epoch, and until when nothing is opened; a Redis without it was never used, was emptied, or is
 * another one. A beat, written every second, tells one that went back in time: restored from a
 * backup, or restarted without its last writes. */

/** ARGV epoch. Answers {'no-incarnation'}, or {'found', epoch, beat before this one}; writes a new
 * beat where the epoch is the one given. */
const advanceScript = defineScript(`
local found = redis.call('HMGET', KEYS[1], 'epoch', 'beat')
if not found[1] then return {'no-incarnation'} end
if found[1] == ARGV[1] then
  redis.call('HINCRBY', KEYS[1], 'beat', 1)
end
return {'found', found[1], found[2] or '0'}
`);

/** ARGV epoch, quarantineMs, least beat. Answers the end of the quarantine in Redis' ms. */
const beginScript = defineScript(`
local t = redis.call('TIME')
local untilMs = 0
if tonumber(ARGV[2]) > 0 then untilMs = t[1] * 1000 + math.floor(t[2] / 1000) + tonumber(ARGV[2]) end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'quarantineUntil', tostring(untilMs), 'beat', ARGV[3])
return {tostring(untilMs)}
`);

export type AdvanceResult =
  | { readonly kind: 'none' }
  | { readonly kind: 'found'; readonly id: string; readonly sequence: number };

/** What the leader does to the blessing of one driver. */
export interface IncarnationStore {
  /** Reads it, and where its epoch is the one given counts one beat on. */
  advance(epoch: string): Promise<AdvanceResult>;
  /** Vouches for what Redis holds now. @param quarantineMs  how long nothing may be opened; 0 for a
   *                                                        first installation */
  begin(incarnation: {
    readonly id: string;
    readonly quarantineMs: number;
    readonly sequence: number;
  }): Promise<void>;
  /** Names the provisioner that is not sutler and holds the driver's Lease: then nothing new is
   * begun here. undefined: sutler leads, or nobody does. */
  setForeignLeader(holder: string | undefined): Promise<void>;
}

/** The blessing in Redis. Both methods reject while Redis can't be reached. */
export function redisIncarnationStore(
  redis: Redis,
  prefix: string,
  driver: string,
): IncarnationStore {
  const keys = [incarnationKey(prefix, driver)] as const;
  return {
    async advance(epoch) {
      // Both scripts answer a list of texts, as their heads say.
      const [word, found, beat] = (await advanceScript.run(redis, keys, [
        epoch,
      ])) as readonly string[];
      return word === 'found'
        ? { kind: 'found', id: found ?? '', sequence: Number(beat) }
        : { kind: 'none' };
    },
    async setForeignLeader(holder) {
      await (holder === undefined
        ? redis.hdel(keys[0], 'foreign')
        : redis.hset(keys[0], 'foreign', holder));
    },
    async begin({ id, quarantineMs, sequence }) {
      await beginScript.run(redis, keys, [id, quarantineMs, sequence]);
    },
  };
}

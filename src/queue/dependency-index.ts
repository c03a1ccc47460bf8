import type { Redis } from 'ioredis';
import { defineNamedScript } from '../redis/named-script.ts';
import type { WaitCondition } from '../rules/rule.ts';
import { JOB_KINDS, type JobKind } from './contract.ts';
import { queueName, waitsKey } from './queue-keys.ts';
import { promoteUnlessRunning, useQueue } from './queues.ts';

/* The wait list: which parked keys wait for a change of which object. Keys that saw the same
 * version of the same object form a group, `object@version`. `waits` is a sorted set of the groups,
 * by the counter in `waits#`; the keys of a group are a hash. status.ts adds a key in the same step
 * that writes its status, before the job is delayed. So ingest, which compares the list with the
 * objects, finds a change whether it came before or after. The list is in Redis, where a new leader
 * finds it too. */

/** Keys that wait for another version of an object. */
export interface WaitGroup {
  /** `resource/namespace/name`; the namespace is empty for an object that has none. */
  readonly object: string;
  /** The version that they saw; '' = the object was not there. */
  readonly seen: string;
}

type ObjectName = Pick<WaitCondition, 'resource' | 'namespace' | 'name'>;

/** How the wait list names an object. */
export function objectId({ resource, namespace = '', name }: ObjectName): string {
  return `${resource}/${namespace}/${name}`;
}

/** The parts of an object's name in the wait list. */
export function parseObjectId(id: string): Required<ObjectName> {
  const [resource = '', namespace = '', name = ''] = id.split('/');
  return { resource, namespace, name };
}

/** The groups of a key with these wait conditions, one a line; '' where it has none. */
export function waitGroups(conditions: readonly WaitCondition[]): string {
  return conditions.map((condition) => `${objectId(condition)}@${condition.seen}`).join('\n');
}

/** Lua functions that move a key between groups, with which the scripts of status.ts begin. */
export const GROUPS_LUA = `
-- Takes a key out of groups.
local function leaveGroups(waits, groups, keyId)
  for group in string.gmatch(groups or '', '[^\\n]+') do
    redis.call('HDEL', waits .. ':' .. group, keyId)
    if redis.call('EXISTS', waits .. ':' .. group) == 0 then redis.call('ZREM', waits, group) end
  end
end

-- Puts a key into groups, and each group behind all others, so that DependencyIndex.since finds it.
local function joinGroups(waits, groups, keyId)
  for group in string.gmatch(groups, '[^\\n]+') do
    redis.call('HSET', waits .. ':' .. group, keyId, '1')
    redis.call('ZADD', waits, redis.call('INCR', waits .. '#'), group)
  end
end
`;

/** Answers with the groups that keys have joined since a position, and the position now. A counter
 * that is behind the position belongs to a Redis that was emptied, so all groups are new then. */
const joinedSince = defineNamedScript({
  keys: ['waits', 'counter'],
  args: { from: 'number' },
  answers: { joined: { position: 'number', groups: 'list' } },
  lua: `
local position = tonumber(redis.call('GET', counter) or '0')
if position < from then from = 0 end
local groups = redis.call('ZRANGEBYSCORE', waits, '(' .. from, '+inf')
return {'joined', 'position', position, 'groups', groups}
`,
});

/** Drops a group that has no key any more. */
const dropEmpty = defineNamedScript({
  keys: ['waits'],
  args: { group: 'text' },
  answers: { ok: {} },
  lua: `
if redis.call('EXISTS', waits .. ':' .. group) == 0 then redis.call('ZREM', waits, group) end
return {'ok'}
`,
});

const PAGE_KEYS = 500;

/** The wait list of one driver's keys. Methods reject when Redis can't be asked. */
export class DependencyIndex {
  readonly #redis: Redis;
  readonly #prefix: string;
  readonly #driver: string;
  readonly #waits: string;

  constructor(redis: Redis, prefix: string, driver: string) {
    this.#redis = redis;
    this.#prefix = prefix;
    this.#driver = driver;
    this.#waits = waitsKey(prefix, driver);
  }

  /** The groups that keys have joined since the position of an earlier answer; all of them where
   * `from` is undefined. Reads no more than the counter while no key has joined one. */
  async since(
    from: number | undefined,
  ): Promise<{ readonly position: number; readonly waiting: readonly WaitGroup[] }> {
    const waits = this.#waits;
    const keys = { waits, counter: `${waits}#` };
    if (from !== undefined && Number(await this.#redis.get(keys.counter)) === from)
      return { position: from, waiting: [] };
    const { position, groups } = await joinedSince.run(this.#redis, keys, { from: from ?? 0 });
    const waiting = groups.map((group) => {
      const at = group.lastIndexOf('@');
      return { object: group.slice(0, at), seen: group.slice(at + 1) };
    });
    return { position, waiting };
  }

  /** Promotes the jobs of a group's keys, and takes the keys out of the group. A key whose run is
   * under way stays in it, since that run may be about to park the key.
   * @returns how many were promoted, and how many are running, for which to call this again */
  async promote({
    object,
    seen,
  }: WaitGroup): Promise<{ readonly promoted: number; readonly running: number }> {
    const group = `${object}@${seen}`;
    const keys = `${this.#waits}:${group}`;
    const total = { promoted: 0, running: 0 };
    let cursor = '0';
    do {
      const [next, fields] = await this.#redis.hscan(keys, cursor, 'COUNT', PAGE_KEYS);
      cursor = next;
      const keyIds = fields.filter((_, i) => i % 2 === 0);
      for (const kind of JOB_KINDS) {
        const ofKind = keyIds.filter((keyId) => keyId.startsWith(`${kind}/`));
        if (ofKind.length === 0) continue;
        const ends = await this.#promoteKeys(kind, ofKind);
        total.promoted += ends.filter((end) => end === 'promoted').length;
        total.running += ends.filter((end) => end === 'running').length;
        const ended = ofKind.filter((_, i) => ends[i] !== 'running');
        if (ended.length > 0) await this.#redis.hdel(keys, ...ended);
      }
    } while (cursor !== '0');
    if (total.running === 0) await dropEmpty.run(this.#redis, { waits: this.#waits }, { group });
    return total;
  }

  #promoteKeys(kind: JobKind, keyIds: readonly string[]) {
    const place = { prefix: this.#prefix, queue: queueName(kind, this.#driver) };
    return useQueue(this.#redis, place, (queue) =>
      Promise.all(keyIds.map((keyId) => promoteUnlessRunning(queue, keyId))),
    );
  }
}

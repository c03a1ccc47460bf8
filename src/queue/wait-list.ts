import type { Redis } from 'ioredis';
import { defineScript } from '../redis/script.ts';
import type { WaitCondition } from '../volumes/refused-error.ts';
import { IS_ACTIVE, JOB_OF, PROMOTE, queueRoot } from './bullmq-layout.ts';
import { JOB_KINDS } from './contract.ts';
import { queueName, waitsKey } from './key-names.ts';

/* The wait list: which parked keys wait for another version of which object. Keys that wait for the
 * same version of the same object form a group, `object@version`. `waits` is a sorted set of the
 * groups, by the counter in `waits#`; the keys of a group are a hash. status.ts lists a key in the
 * same step that writes its status, before the job is delayed. So ingest, which compares the list
 * with the objects, finds a change whether it came before or after. It is in Redis, where a new
 * leader finds it too. Builds on bullmq-layout.ts. */

/** Keys that wait for another version of an object. */
export interface WaitGroup {
  /** `resource/namespace/name`; the namespace is empty for an object that has none. */
  readonly object: string;
  /** The version that they saw; '' = the object was not there. */
  readonly seen: string;
}

/** How the wait list names an object. */
export function objectId(object: Pick<WaitCondition, 'resource' | 'namespace' | 'name'>): string {
  return `${object.resource}/${object.namespace ?? ''}/${object.name}`;
}

/** The parts of an object's name in the wait list. */
export function parseObjectId(
  id: string,
): Required<Pick<WaitCondition, 'resource' | 'namespace' | 'name'>> {
  const [resource = '', namespace = '', name = ''] = id.split('/');
  return { resource, namespace, name };
}

/** The groups of a key with these wait conditions, one a line; '' where it has none. */
export function waitGroups(conditions: readonly WaitCondition[]): string {
  return conditions.map((condition) => `${objectId(condition)}@${condition.seen}`).join('\n');
}

/** Lua: `leaveGroups(waits, groups, keyId)` takes a key out of groups. */
export const LEAVE_GROUPS = `
local function leaveGroups(waits, groups, keyId)
  for group in string.gmatch(groups or '', '[^\\n]+') do
    redis.call('HDEL', waits .. ':' .. group, keyId)
    if redis.call('EXISTS', waits .. ':' .. group) == 0 then redis.call('ZREM', waits, group) end
  end
end
`;

/** Lua: `joinGroups(waits, groups, keyId)` puts a key into groups, and each group behind all
 * others, so that `since` finds it. */
export const JOIN_GROUPS = `
local function joinGroups(waits, groups, keyId)
  for group in string.gmatch(groups, '[^\\n]+') do
    redis.call('HSET', waits .. ':' .. group, keyId, '1')
    redis.call('ZADD', waits, redis.call('INCR', waits .. '#'), group)
  end
end
`;

/** KEYS: 1 wait list, 2 its counter. ARGV: 1 position of an earlier answer.
 * Answer: the position now, then the groups that keys have joined since. */
const since = defineScript(`
local waits, counter, from = KEYS[1], KEYS[2], tonumber(ARGV[1])
local position = tonumber(redis.call('GET', counter) or '0')
if position < from then from = 0 end
local answer = redis.call('ZRANGEBYSCORE', waits, '(' .. from, '+inf')
table.insert(answer, 1, tostring(position))
return answer
`);

/** Promotes the delayed jobs of a group's keys, a page at a time, and takes their keys out of the
 * group. A key whose run is under way stays, since that run may be about to park it.
 * KEYS: 1 wait list.
 * ARGV: 1 group, 2 cursor, 3 now in Unix ms, then for each kind of job: kind, root of its queue.
 * Answer: next cursor, how many were promoted, how many are running. */
const promoteGroup = defineScript(`${JOB_OF}${IS_ACTIVE}${PROMOTE}
local waits, group, cursor, nowMs = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local roots = {}
for i = 4, #ARGV, 2 do roots[ARGV[i]] = ARGV[i + 1] end
local keys = waits .. ':' .. group
local page = redis.call('HSCAN', keys, cursor, 'COUNT', 500)
local nextCursor, fields = page[1], page[2]
local promoted, running = 0, 0
for i = 1, #fields, 2 do
  local keyId = fields[i]
  local root = roots[string.match(keyId, '^%a+')]
  local jobId = root and jobOf(root, keyId)
  if jobId and promote(root, jobId, nowMs) then
    redis.call('HDEL', keys, keyId)
    promoted = promoted + 1
  elseif jobId and isActive(root, jobId) then
    running = running + 1
  else
    redis.call('HDEL', keys, keyId)
  end
end
if redis.call('EXISTS', keys) == 0 then redis.call('ZREM', waits, group) end
return { nextCursor, promoted, running }
`);

/** The wait list of one driver's keys. Methods reject when Redis can't be asked. */
export class WaitList {
  readonly #redis: Redis;
  readonly #key: string;
  readonly #roots: readonly string[];

  constructor(redis: Redis, prefix: string, driver: string) {
    this.#redis = redis;
    this.#key = waitsKey(prefix, driver);
    this.#roots = JOB_KINDS.flatMap((kind) => [kind, queueRoot(prefix, queueName(kind, driver))]);
  }

  /** The groups that keys have joined since an earlier answer's position; all from position 0. */
  async since(
    position: number,
  ): Promise<{ readonly position: number; readonly waiting: readonly WaitGroup[] }> {
    const answer = await since.run(this.#redis, [this.#key, `${this.#key}#`], [position]);
    const [last = '0', ...groups] = answer as readonly string[];
    const waiting = groups.map((group) => {
      const at = group.lastIndexOf('@');
      return { object: group.slice(0, at), seen: group.slice(at + 1) };
    });
    return { position: Number(last), waiting };
  }

  /** Promotes the jobs of a group's keys.
   * @returns how many were promoted; how many are running, for which to call this again */
  async promote(
    { object, seen }: WaitGroup,
    nowMs: number,
  ): Promise<{ readonly promoted: number; readonly running: number }> {
    const total = { promoted: 0, running: 0 };
    let cursor = '0';
    do {
      const args = [`${object}@${seen}`, cursor, nowMs, ...this.#roots];
      const answer = await promoteGroup.run(this.#redis, [this.#key], args);
      const [nextCursor, promoted, running] = answer as readonly [string, number, number];
      cursor = nextCursor;
      total.promoted += promoted;
      total.running += running;
    } while (cursor !== '0');
    return total;
  }
}

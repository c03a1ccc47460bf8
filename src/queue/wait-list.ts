import type { Redis } from 'ioredis';

import { JOB_KINDS } from './contract.ts';
import { keyPrefix } from '../redis/key-names.ts';
import { queueName, waitsKey } from './key-names.ts';
import type { WaitCondition } from './outcome.ts';
import { defineScript, END_WAIT } from '../redis/script.ts';

/* Which keys wait for which object, and the version of it that they saw. Written in the script that
 * writes a key's status, before the job is put back: so whoever watches the object finds the key
 * whatever came first, the change or the parking. It is in Redis, so that a new leader has it. */

/** Some keys wait for another version of an object. */
export interface Waiting {
  /** `resource/namespace/name`; the namespace is empty for what has none. */
  readonly object: string;
  /** The version that they saw; '' = none. */
  readonly seen: string;
}

/** How an object is named here. */
export function objectId(object: Pick<WaitCondition, 'resource' | 'namespace' | 'name'>): string {
  return `${object.resource}/${object.namespace ?? ''}/${object.name}`;
}

/** Takes an object's name apart. */
export function parseObjectId(id: string): {
  readonly resource: string;
  readonly namespace: string;
  readonly name: string;
} {
  const [resource = '', namespace = '', name = ''] = id.split('/');
  return { resource, namespace, name };
}

/** The groups that a key is in, one a line: keys that wait for one version of one object make a
 * group. '' where it waits for nothing that is watched. */
export function waitGroups(until: readonly WaitCondition[]): string {
  return until
    .flatMap((object) => (object.seen === undefined ? [] : [`${objectId(object)}@${object.seen}`]))
    .join('\n');
}

/** Lua: takes the key `id` out of the groups that it is in; `waits` is the set of groups. */
export const LEAVE_GROUPS = `
local function leave(waits, groups, id)
  for group in string.gmatch(groups or '', '[^\\n]+') do
    redis.call('HDEL', waits .. ':' .. group, id)
    if redis.call('EXISTS', waits .. ':' .. group) == 0 then redis.call('ZREM', waits, group) end
  end
end
`;

/** Lua: puts the key `id` into groups; the counter gives each a place after all that was looked at
 * before. */
export const JOIN_GROUPS = `
local function join(waits, groups, id)
  for group in string.gmatch(groups, '[^\\n]+') do
    redis.call('HSET', waits .. ':' .. group, id, '1')
    redis.call('ZADD', waits, redis.call('INCR', waits .. '#'), group)
  end
end
`;

/** KEYS: groups, counter. ARGV: position of the last look. Returns the position now, then the
 * groups that were joined since. */
const since = defineScript(`
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
local from = tonumber(ARGV[1])
if last < from then from = 0 end
local answer = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. from, '+inf')
table.insert(answer, 1, tostring(last))
return answer
`);

/** KEYS: groups. ARGV: group, cursor, now in ms, then by kind of job: the kind, the beginning of
 * BullMQ's keys. Runs what waits at once; what is running keeps its place, since it may be about to
 * park. Returns the next cursor, how many were woken, how many are running. */
const wake = defineScript(`${END_WAIT}
local place = KEYS[1] .. ':' .. ARGV[1]
local page = redis.call('HSCAN', place, ARGV[2], 'COUNT', 500)
local woken, running = 0, 0
local roots = {}
for i = 4, #ARGV, 2 do roots[ARGV[i]] = ARGV[i + 1] end
for i = 1, #page[2], 2 do
  local id = page[2][i]
  local root = roots[string.match(id, '^%a+')]
  local job = root and redis.call('GET', root .. 'de:' .. id)
  if job and endWait(root, job, ARGV[3]) then
    redis.call('HDEL', place, id)
    woken = woken + 1
  elseif job and redis.call('LPOS', root .. 'active', job) then
    running = running + 1
  else
    redis.call('HDEL', place, id)
  end
end
if redis.call('EXISTS', place) == 0 then redis.call('ZREM', KEYS[1], ARGV[1]) end
return {page[1], woken, running}
`);

/** The waits of one driver's keys. Methods reject when Redis can't be asked. */
export class WaitList {
  readonly #redis: Redis;
  readonly #key: string;
  readonly #roots: readonly string[];

  constructor(redis: Redis, prefix: string, driver: string) {
    this.#redis = redis;
    this.#key = waitsKey(prefix, driver);
    this.#roots = JOB_KINDS.flatMap((kind) => [
      kind,
      `${keyPrefix(prefix)}:${queueName(kind, driver)}:`,
    ]);
  }

  /** What keys began to wait for since an earlier look; everything from position 0. */
  async since(
    position: number,
  ): Promise<{ readonly position: number; readonly waiting: readonly Waiting[] }> {
    // A list of texts, the position first.
    const [last = '0', ...groups] = (await since.run(
      this.#redis,
      [this.#key, `${this.#key}#`],
      [position],
    )) as readonly string[];
    const waiting = groups.map((group) => {
      const at = group.lastIndexOf('@');
      return { object: group.slice(0, at), seen: group.slice(at + 1) };
    });
    return { position: Number(last), waiting };
  }

  /** Runs the keys that wait for another version than the one they saw. `running`: keys under way
   * now, to be looked at again. */
  async promote(
    { object, seen }: Waiting,
    nowMs: number,
  ): Promise<{ readonly woken: number; readonly running: number }> {
    const total = { woken: 0, running: 0 };
    let cursor = '0';
    do {
      const answer = await wake.run(
        this.#redis,
        [this.#key],
        [`${object}@${seen}`, cursor, nowMs, ...this.#roots],
      );
      const [next, woken, running] = answer as readonly [string, number, number];
      cursor = next;
      total.woken += woken;
      total.running += running;
    } while (cursor !== '0');
    return total;
  }
}

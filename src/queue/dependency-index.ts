import type { Redis } from 'ioredis';
import { defineNamedScript } from '../redis/named-script.ts';
import type { WaitCondition } from '../rules/refused-error.ts';
import { QUEUE_LUA, queueRoot } from './bullmq-layout.ts';
import type { JobKind } from './contract.ts';
import { queueName, waitsKey } from './key-names.ts';

/* The wait list: which parked keys wait for a change of which object. Keys that saw the same
 * version of the same object form a group, `object@version`. `waits` is a sorted set of the groups,
 * by the counter in `waits#`; the keys of a group are a hash. status.ts adds a key in the same step
 * that writes its status, before the job is delayed. So ingest, which compares the list with the
 * objects, finds a change whether it came before or after. The list is in Redis, where a new leader
 * finds it too. Builds on bullmq-layout.ts. */

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

/** Promotes the delayed jobs of one page of a group's keys, and takes their keys out of the group.
 * A key whose run is under way stays in it, since that run may be about to park the key. */
const promotePage = defineNamedScript({
  keys: ['waits', 'claimRoot', 'volumeRoot', 'snapshotRoot'],
  args: { group: 'text', cursor: 'text', nowMs: 'number' },
  answers: { page: { nextCursor: 'text', promoted: 'number', running: 'number' } },
  lua: `${QUEUE_LUA}
local roots = { claim = claimRoot, volume = volumeRoot, snapshot = snapshotRoot }
local keys = waits .. ':' .. group
local page = redis.call('HSCAN', keys, cursor, 'COUNT', 500)
local nextCursor, fields = page[1], page[2]
local promoted, running = 0, 0
for i = 1, #fields, 2 do
  local keyId = fields[i]
  local root = roots[string.match(keyId, '^%a+')]
  local jobId = root and jobOf(root, keyId)
  if jobId and isActive(root, jobId) then
    running = running + 1
  else
    if jobId and promote(root, jobId, nowMs) then promoted = promoted + 1 end
    redis.call('HDEL', keys, keyId)
  end
end
if redis.call('EXISTS', keys) == 0 then redis.call('ZREM', waits, group) end
return {'page', 'nextCursor', nextCursor, 'promoted', promoted, 'running', running}
`,
});

/** The wait list of one driver's keys. Methods reject when Redis can't be asked. */
export class DependencyIndex {
  readonly #redis: Redis;
  readonly #keys: Readonly<Record<'waits' | `${Exclude<JobKind, 'capacity'>}Root`, string>>;

  constructor(redis: Redis, prefix: string, driver: string) {
    const rootOf = (kind: JobKind): string => queueRoot(prefix, queueName(kind, driver));
    this.#redis = redis;
    this.#keys = {
      waits: waitsKey(prefix, driver),
      claimRoot: rootOf('claim'),
      volumeRoot: rootOf('volume'),
      snapshotRoot: rootOf('snapshot'),
    };
  }

  /** The groups that keys have joined since the position of an earlier answer; all of them where
   * `from` is undefined. Reads no more than the counter while no key has joined one. */
  async since(
    from: number | undefined,
  ): Promise<{ readonly position: number; readonly waiting: readonly WaitGroup[] }> {
    const { waits } = this.#keys;
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

  /** Promotes the jobs of a group's keys.
   * @returns how many were promoted, and how many are running, for which to call this again */
  async promote(
    { object, seen }: WaitGroup,
    nowMs: number,
  ): Promise<{ readonly promoted: number; readonly running: number }> {
    const total = { promoted: 0, running: 0 };
    let cursor = '0';
    do {
      const args = { group: `${object}@${seen}`, cursor, nowMs };
      const page = await promotePage.run(this.#redis, this.#keys, args);
      cursor = page.nextCursor;
      total.promoted += page.promoted;
      total.running += page.running;
    } while (cursor !== '0');
    return total;
  }
}

import type { RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript } from '../redis/named-script.ts';
import type { WaitCondition } from '../rules/rule.ts';
import { type JobKind, JOB_KINDS } from './contract.ts';
import { queueName, waitsKey } from './queue-keys.ts';
import { promoteUnlessRunning, useQueue } from './queues.ts';

/* Which parked keys wait for a change of which object. Keys that saw the same version of the same
 * object form a group, `object@version`. `waits` is a sorted set of the groups; the keys of a group
 * are a hash, each with the number under which it joined; the counter `waits#` grows whenever a key
 * joins a group or a group ends. status.ts adds a key in the same step that writes its status,
 * before the job is delayed. So ingest, which compares the index with the objects, finds a change
 * whether it came before or after. The index is in Redis, where a new leader finds it too. */

/** Keys that wait for another version of an object. */
export interface WaitGroup {
  /** `resource/namespace/name`; the namespace is empty for an object that has none. */
  readonly object: string;
  /** The version that they saw; '' = the object was not there. */
  readonly seen: string;
}

type ObjectName = Pick<WaitCondition, 'resource' | 'namespace' | 'name'>;

/** How the index names an object. */
export function objectId({ resource, namespace = '', name }: ObjectName): string {
  return `${resource}/${namespace}/${name}`;
}

/** The parts of an object's name in the index. */
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
-- Ends a group that has no key any more.
local function endIfEmpty(waits, group)
  if redis.call('EXISTS', waits .. ':' .. group) == 1 then return end
  if redis.call('ZREM', waits, group) == 1 then redis.call('INCR', waits .. '#') end
end

-- Takes a key out of groups.
local function leaveGroups(waits, groups, keyId)
  for group in string.gmatch(groups or '', '[^\\n]+') do
    redis.call('HDEL', waits .. ':' .. group, keyId)
    endIfEmpty(waits, group)
  end
end

-- Puts a key into groups.
local function joinGroups(waits, groups, keyId)
  for group in string.gmatch(groups, '[^\\n]+') do
    local number = redis.call('INCR', waits .. '#')
    redis.call('HSET', waits .. ':' .. group, keyId, number)
    redis.call('ZADD', waits, number, group)
  end
end
`;

/** Takes keys out of a group, but for those that have joined it again meanwhile.
 *
 * Args  members  JSON, the number under which each key joined, by key id */
const leaveScript = defineNamedScript({
  keys: ['waits'],
  args: { group: 'text', members: 'text' },
  answers: { ok: {} },
  lua: `${GROUPS_LUA}
local keys = waits .. ':' .. group
for keyId, number in pairs(cjson.decode(members)) do
  if redis.call('HGET', keys, keyId) == number then redis.call('HDEL', keys, keyId) end
end
endIfEmpty(waits, group)
return {'ok'}
`,
});

/** Keys of a group that are read and promoted at once. */
const PAGE_SIZE = 500;

/** The dependency index of one driver's keys. Methods reject when Redis can't be asked. */
export class DependencyIndex {
  readonly #place: RedisPlace;
  readonly #waits: string;

  constructor(place: RedisPlace) {
    this.#place = place;
    this.#waits = waitsKey(place.prefix, place.driver);
  }

  /** All groups; undefined while nothing has changed since an earlier answer.
   * @param known  the version of that answer */
  async read(
    known: number | undefined,
  ): Promise<{ readonly version: number; readonly groups: readonly WaitGroup[] } | undefined> {
    // Read first: a key that joins in between changes it again.
    const version = Number(await this.#place.redis.get(`${this.#waits}#`));
    if (version === known) return undefined;
    const groups = await this.#place.redis.zrange(this.#waits, '0', '-1');
    return {
      version,
      groups: groups.map((group) => {
        const at = group.lastIndexOf('@');
        return { object: group.slice(0, at), seen: group.slice(at + 1) };
      }),
    };
  }

  /** Promotes the delayed jobs of a group's keys, and takes those keys out of the group that have
   * no run under way: such a run may be about to park its key.
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
      const [next, fields] = await this.#place.redis.hscan(keys, cursor, 'COUNT', PAGE_SIZE);
      cursor = next;
      const left = new Map(fields.flatMap((id, i) => (i % 2 === 0 ? [[id, fields[i + 1]]] : [])));
      for (const kind of JOB_KINDS) {
        const keyIds = [...left.keys()].filter((id) => id.startsWith(`${kind}/`));
        const ends = keyIds.length === 0 ? [] : await this.#promoteKeys(kind, keyIds);
        total.promoted += ends.filter((end) => end === 'promoted').length;
        total.running += ends.filter((end) => end === 'running').length;
        for (const id of keyIds.filter((_, i) => ends[i] === 'running')) left.delete(id);
      }
      const members = JSON.stringify(Object.fromEntries(left));
      await leaveScript.run(this.#place.redis, { waits: this.#waits }, { group, members });
    } while (cursor !== '0');
    return total;
  }

  #promoteKeys(kind: JobKind, keyIds: readonly string[]) {
    const { redis, prefix, driver } = this.#place;
    return useQueue(redis, { prefix, queue: queueName(kind, driver) }, (queue) =>
      Promise.all(keyIds.map((keyId) => promoteUnlessRunning(queue, keyId))),
    );
  }
}

import { randomUUID } from 'node:crypto';
import { type DriverPlace, keyPrefix, type RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript } from '../redis/named-script.ts';
import type { JobKind } from './contract.ts';
import { markerKey, queueName, queueRoot } from './queue-keys.ts';

/* A history is one uninterrupted life of Redis' data. Its name has a random marker that Redis
 * keeps, and the id of Redis' replication, which changes with each restart and failover. sutler
 * ignores data of another history (docs/leak-proof.md). The key `jobs-history` names the history of
 * the driver's jobs: the leader empties the queues before it writes a new history there. */

/** Key of the history that the driver's jobs belong to. */
function jobsHistoryKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:jobs-history:${driver}`;
}

/** Key of the leader's term. */
function termKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:term:${driver}`;
}

/** The keys of the scripts that check the history. */
export function historyKeys({ prefix, driver }: DriverPlace) {
  return {
    marker: markerKey(prefix),
    jobsHistory: jobsHistoryKey(prefix, driver),
    term: termKey(prefix, driver),
  };
}

/** The names of these keys in a script. */
export const HISTORY_KEYS = ['marker', 'jobsHistory', 'term'] as const;

/** Lua: the local `history`, '' if Redis has no marker; and `isOfHistory`, whether the jobs are of
 * it. */
export const HISTORY_LUA = `
local replication = string.match(redis.call('INFO', 'replication') or '', 'master_replid:(%x+)')
local markerText = redis.call('GET', marker)
local history = markerText and (markerText .. ':' .. (replication or '')) or ''
local isOfHistory = history ~= '' and redis.call('GET', jobsHistory) == history
`;

const readScript = defineNamedScript({
  keys: HISTORY_KEYS,
  args: { fresh: 'text' },
  answers: { read: { history: 'text', isOfHistory: 'flag', term: 'text' } },
  lua: `if fresh ~= '' then redis.call('SET', marker, fresh, 'NX') end
${HISTORY_LUA}
return {'read', 'history', history, 'isOfHistory', isOfHistory and '1' or '0',
  'term', redis.call('GET', term) or ''}
`,
});

/** The present history, and whether the jobs are of it. */
export interface RedisHistory {
  /** '' if Redis has no marker yet. */
  readonly history: string;
  /** Whether the driver's jobs are of this history. */
  readonly isOfHistory: boolean;
}

/** Reads the history. Writes a marker if Redis has none. */
export async function readHistory(place: RedisPlace): Promise<RedisHistory> {
  const { kind: _, ...read } = await readScript.run(place.redis, historyKeys(place), {
    fresh: randomUUID(),
  });
  return read;
}

/** Reads the history for people, and writes no marker. */
export async function showHistory(place: RedisPlace): Promise<RedisHistory> {
  const { kind: _, ...read } = await readScript.run(place.redis, historyKeys(place), { fresh: '' });
  return read;
}

/** The term of a leader. */
export interface Term {
  /** leaseTransitions of the driver's Lease when it began to lead; 0 without leader election. */
  readonly transitions: number;
  /** Unique to this process. */
  readonly leader: string;
}

/** The term as Redis keeps it. */
export function termText({ transitions, leader }: Term): string {
  return `${transitions}/${leader}`;
}

const beginScript = defineNamedScript({
  keys: HISTORY_KEYS,
  args: { transitions: 'number', text: 'text', hasLed: 'flag' },
  answers: { begun: {}, behind: { transitions: 'number' } },
  lua: `
local stored = redis.call('GET', term) or ''
local current = tonumber(string.match(stored, '^(%d+)/')) or 0
local isDisplaced = hasLed and current == transitions and stored ~= text and stored ~= ''
if current > transitions or isDisplaced then return {'behind', 'transitions', current} end
redis.call('SET', term, text)
return {'begun'}
`,
});

/** Writes the term of a new leader (J3), if no higher term is stored.
 * @param hasLed  this process has begun in this term before: then nobody else can have
 * @returns the higher term of another leader; undefined if this term is written */
export async function beginTerm(
  place: RedisPlace,
  term: Term,
  hasLed: boolean,
): Promise<number | undefined> {
  const { transitions } = term;
  const args = { transitions, text: termText(term), hasLed };
  const answer = await beginScript.run(place.redis, historyKeys(place), args);
  return answer.kind === 'behind' ? answer.transitions : undefined;
}

/** Removes all jobs if they are of another history. For 100,000 jobs Redis needs about a second. */
const dropScript = defineNamedScript({
  keys: [...HISTORY_KEYS, 'claims', 'volumes'],
  args: { text: 'text', known: 'text' },
  answers: { dropped: {}, other: {} },
  lua: `${HISTORY_LUA}
if redis.call('GET', term) ~= text or history ~= known then return {'other'} end
if isOfHistory then return {'dropped'} end
local function drop(root, names, command)
  for _, name in ipairs(names) do
    for _, id in ipairs(redis.call(command, root .. name, 0, -1)) do
      redis.call('DEL', root .. id, root .. id .. ':lock', root .. id .. ':logs')
    end
    redis.call('DEL', root .. name)
  end
end
for _, root in ipairs({claims, volumes}) do
  drop(root, {'wait', 'paused', 'active'}, 'LRANGE')
  drop(root, {'prioritized', 'delayed', 'completed', 'failed'}, 'ZRANGE')
  redis.call('DEL', root .. 'stalled')
end
redis.call('SET', jobsHistory, history)
return {'dropped'}
`,
});

/** Removes the driver's jobs if they are of another history, so that its jobs are of `history`.
 * BullMQ's own call would not check the term: an old leader could remove the jobs of the present
 * one.
 * @returns false if another leader has begun, or Redis has lost its data once more */
export async function dropJobsOfBefore(
  place: RedisPlace,
  term: Term,
  history: string,
): Promise<boolean> {
  const { redis, prefix, driver } = place;
  const rootOf = (kind: JobKind): string => queueRoot(prefix, queueName(kind, driver));
  const keys = { ...historyKeys(place), claims: rootOf('claim'), volumes: rootOf('volume') };
  const args = { text: termText(term), known: history };
  return (await dropScript.run(redis, keys, args)).kind === 'dropped';
}

/** Gives this Redis another history, so that sutler ignores what it holds. */
export async function forgetHistory({ redis, prefix }: RedisPlace): Promise<void> {
  await redis.set(markerKey(prefix), randomUUID());
}

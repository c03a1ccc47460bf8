import type { Redis } from 'ioredis';
import type { DriverPlace, RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript, defineScript } from '../redis/named-script.ts';
import type { WaitCondition } from '../rules/rule.ts';
import { type JobKey, keyId, parseKey } from './contract.ts';
import { statusKey, waitsKey } from './queue-keys.ts';
import type { Outcome } from './outcome.ts';
import { isFields, listIn, parseJson } from '../runtime/json.ts';

/** Why a key waits. The consumer writes it when a run ends otherwise than with `done`, and removes
 * it when one ends so; it expires after a day without a run. */
export interface RunStatus {
  readonly outcome: Exclude<Outcome['kind'], 'done'>;
  /** How many runs in a row had this outcome. */
  readonly count: number;
  /** How many runs in a row ended for this reason, apart from its numbers. */
  readonly alike: number;
  readonly reason: string;
  /** Unix time of the last run's end. */
  readonly atMs: number;
  /** Unix time of the first run since the key was last done, or had no status. */
  readonly firstMs: number;
  readonly runs: number;
  /** What the key waits for; empty if no object ends its wait. */
  readonly until: readonly WaitCondition[];
  /** The last changes of the reason, the oldest first. */
  readonly history: readonly StatusChange[];
  readonly infeasible?: InfeasibleBackoff;
}

/** From when on the runs of a key ended for another reason. */
export interface StatusChange {
  /** Unix time. */
  readonly atMs: number;
  /** Its beginning. */
  readonly reason: string;
  /** How long the first of these runs took; absent where an earlier version wrote it. */
  readonly tookMs?: number;
}

/** A delay that no edit ends while the key asks for the same scope. */
export interface InfeasibleBackoff {
  readonly scope: string;
  /** Unix time. */
  readonly untilMs: number;
}

const STATUS_TTL_MS = 86_400_000;
const HISTORY_LENGTH = 8;
const HISTORY_REASON_LENGTH = 200;

/** Writes a status, and notes the key where it waits for objects. `key`, `conditions` and
 * `infeasible` are JSON or ''. The stored back-off stays until another replaces it, also when it is
 * over. */
const write = defineNamedScript({
  keys: ['status', 'waits'],
  args: {
    keyId: 'text',
    key: 'text',
    outcome: 'text',
    reason: 'text',
    atMs: 'number',
    tookMs: 'text',
    conditions: 'text',
    infeasible: 'text',
    newsAfterMs: 'number',
  },
  answers: { written: { count: 'number', isNews: 'flag' } },
  lua: `
local lastOutcome, lastCount, lastInfeasible, lastReason =
  unpack(redis.call('HMGET', status, 'outcome', 'count', 'infeasible', 'reason'))
local first, runs, history, told, alike =
  unpack(redis.call('HMGET', status, 'first', 'runs', 'history', 'told', 'alike'))
local count = lastOutcome == outcome and (tonumber(lastCount) or 0) + 1 or 1
if conditions == '' then redis.call('HDEL', waits, keyId)
else redis.call('HSET', waits, keyId, key) end
-- Numbers, as of free bytes, may differ in each run that fails for the same reason.
local function sense(text) return (string.gsub(text or '', '%d+', '0')) end
local changes = history and cjson.decode(history) or {}
alike = (tonumber(alike) or 0) + 1
if sense(lastReason) ~= sense(reason) then
  alike = 1
  told = '0'
  changes[#changes + 1] =
    {atMs, string.sub(reason, 1, ${HISTORY_REASON_LENGTH}), tonumber(tookMs)}
  if #changes > ${HISTORY_LENGTH} then table.remove(changes, 1) end
end
local sinceMs = atMs - (changes[#changes] or {atMs})[1]
local isNews = told ~= '1' and sinceMs >= newsAfterMs
redis.call('HSET', status, 'told', isNews and '1' or told or '0',
  'outcome', outcome, 'count', count, 'alike', alike, 'reason', reason, 'at', atMs,
  'until', conditions,
  'infeasible', infeasible == '' and lastInfeasible or infeasible,
  'first', first or atMs, 'runs', (tonumber(runs) or 0) + 1, 'history', cjson.encode(changes))
redis.call('PEXPIRE', status, ${STATUS_TTL_MS})
return {'written', 'count', count, 'isNews', isNews and '1' or '0'}
`,
});

/** Deletes a status. Answers the history. */
const clear = defineNamedScript({
  keys: ['status', 'waits'],
  args: { keyId: 'text' },
  answers: { ok: { history: 'text' } },
  lua: `
local history = redis.call('HGET', status, 'history')
redis.call('HDEL', waits, keyId)
redis.call('DEL', status)
return {'ok', 'history', history or ''}
`,
});

/** Which key's status, in which installation. */
export interface StatusPlace extends DriverPlace {
  readonly key: Pick<JobKey, 'kind' | 'uid'>;
}

/** Writes why a key waits, and for which versions of which objects.
 * @param status.tookMs  how long the run took, if known
 * @returns how many runs in a row, this one included, had the same outcome, and whether the reason
 *          is another than before, apart from its numbers, for `newsAfterMs` now: true once */
export async function writeStatus(
  redis: Redis,
  place: StatusPlace & { readonly key: JobKey },
  status: Pick<RunStatus, 'outcome' | 'reason' | 'atMs'> & {
    readonly until?: readonly WaitCondition[] | undefined;
    readonly infeasible?: InfeasibleBackoff | undefined;
    readonly newsAfterMs?: number;
    readonly tookMs?: number | undefined;
  },
): Promise<{ readonly count: number; readonly isNews: boolean }> {
  const { outcome, reason, atMs, until, infeasible, newsAfterMs = 0, tookMs } = status;
  return write.run(redis, keysOf(place), {
    keyId: keyId(place.key),
    outcome,
    reason,
    atMs,
    tookMs: tookMs === undefined ? '' : String(Math.round(tookMs)),
    key: JSON.stringify(place.key),
    conditions: until === undefined || until.length === 0 ? '' : JSON.stringify(until),
    infeasible: infeasible ? JSON.stringify(infeasible) : '',
    newsAfterMs,
  });
}

/** Deletes why a key waited, and for what.
 * @returns how the reason had changed */
export async function clearStatus(
  redis: Redis,
  place: StatusPlace,
): Promise<readonly StatusChange[]> {
  const { history } = await clear.run(redis, keysOf(place), { keyId: keyId(place.key) });
  return decodeChanges(listIn(history));
}

function keysOf({ prefix, driver, key }: StatusPlace) {
  return { status: statusKey(prefix, driver, key.uid), waits: waitsKey(prefix, driver) };
}

/** The keys that wait for objects, and for which. */
export async function readWaiting({
  redis,
  prefix,
  driver,
}: RedisPlace): Promise<readonly { readonly key: JobKey; readonly until: RunStatus['until'] }[]> {
  const keys = Object.values(await redis.hgetall(waitsKey(prefix, driver))).flatMap((text) => {
    const value = parseJson(text);
    const parsed = isFields(value) ? parseKey(value) : undefined;
    return parsed?.ok === true ? [parsed.key] : [];
  });
  const uids = keys.map(({ uid }) => uid);
  const statuses = await readStatuses(redis, { prefix, driver }, uids);
  return keys.map((key) => ({ key, until: statuses.get(key.uid)?.until ?? [] }));
}

/** Why a key waits; undefined when nothing is stored. */
export async function readStatus(redis: Redis, place: StatusPlace): Promise<RunStatus | undefined> {
  return parseStatus(await redis.hgetall(keysOf(place).status));
}

/** Without the history: each field costs time, for many keys. */
const LISTED = ['outcome', 'count', 'alike', 'reason', 'at', 'first', 'runs', 'until'] as const;

/** Answers the listed fields of each status. */
const readMany = defineScript(`
local found = {}
for i = 2, #ARGV do
  local fields = redis.call('HMGET', ARGV[1] .. ARGV[i], '${LISTED.join("', '")}')
  found[i - 1] = fields[1] and fields
end
return found
`);

/** Keys that are read at a time: Redis does nothing else meanwhile. */
const STATUSES_AT_ONCE = 1_000;

/** Why many keys of a driver wait, by UID; without their histories. */
export async function readStatuses(
  redis: Redis,
  { prefix, driver }: Omit<StatusPlace, 'key'>,
  uids: readonly string[],
): Promise<ReadonlyMap<string, RunStatus>> {
  const found = new Map<string, RunStatus>();
  const root = statusKey(prefix, driver, '');
  for (let i = 0; i < uids.length; i += STATUSES_AT_ONCE) {
    const page = uids.slice(i, i + STATUSES_AT_ONCE);
    const answers = (await readMany.run(redis, [], [root, ...page])) as readonly (
      readonly (string | null)[] | null
    )[];
    for (const [at, values] of answers.entries()) {
      if (values === null) continue;
      const fields = Object.fromEntries(LISTED.map((name, k) => [name, values[k] ?? '']));
      const status = parseStatus(fields);
      if (status !== undefined) found.set(page[at] ?? '', status);
    }
  }
  return found;
}

function parseStatus(fields: Readonly<Record<string, string>>): RunStatus | undefined {
  const { outcome, count, alike, reason, at, first, runs, until, history, infeasible } = fields;
  if (outcome !== 'retry' && outcome !== 'later' && outcome !== 'running' && outcome !== 'parked')
    return undefined;
  return {
    outcome,
    count: Number(count),
    alike: Number(alike ?? 1),
    reason: reason ?? '',
    atMs: Number(at),
    firstMs: Number(first ?? at),
    runs: Number(runs ?? count),
    until: listIn(until).flatMap(asCondition),
    history: decodeChanges(listIn(history)),
    ...(infeasible ? parseInfeasible(infeasible) : {}),
  };
}

function asCondition(value: unknown): readonly WaitCondition[] {
  if (!isFields(value)) return [];
  const { resource, namespace, name, seen } = value;
  if (typeof resource !== 'string' || typeof name !== 'string') return [];
  const place = typeof namespace === 'string' ? { namespace } : {};
  return [{ resource, name, seen: String(seen), ...place }];
}

/** Changes as JSON has them. */
export function encodeChanges(changes: readonly StatusChange[]): readonly (readonly unknown[])[] {
  return changes.map(({ atMs, reason, tookMs }) => [atMs, reason, tookMs]);
}

/** @param list  as encodeChanges gives it; leaves out what is no change */
export function decodeChanges(list: unknown): readonly StatusChange[] {
  return Array.isArray(list) ? list.flatMap(asChange) : [];
}

function asChange(value: unknown): readonly StatusChange[] {
  const [atMs, reason, tookMs]: readonly unknown[] = Array.isArray(value) ? value : [];
  if (typeof atMs !== 'number' || typeof reason !== 'string') return [];
  return [{ atMs, reason, ...(typeof tookMs === 'number' ? { tookMs } : {}) }];
}

function parseInfeasible(text: string): Pick<RunStatus, 'infeasible'> {
  const infeasible = parseJson(text);
  if (!isFields(infeasible)) return {};
  const { scope, untilMs } = infeasible;
  return typeof scope === 'string' && typeof untilMs === 'number'
    ? { infeasible: { scope, untilMs } }
    : {};
}

import type { Redis } from 'ioredis';
import { defineNamedScript } from '../redis/named-script.ts';
import type { WaitCondition } from '../rules/rule.ts';
import { type JobKey, keyId } from './contract.ts';
import { statusKey, waitsKey } from './queue-keys.ts';
import type { Outcome } from './outcome.ts';
import { GROUPS_LUA, waitGroups } from './dependency-index.ts';
import { isFields, parseJson } from '../runtime/json.ts';

/** Why a key waits. The consumer writes it when a run ends otherwise than with `done`, and removes
 * it when one ends so; it expires after a day without a run. */
export interface RunStatus {
  readonly outcome: Exclude<Outcome['kind'], 'done'>;
  /** How many runs in a row had this outcome. */
  readonly count: number;
  readonly reason: string;
  /** Unix time of the last run's end. */
  readonly atMs: number;
  readonly infeasible?: InfeasibleBackoff;
}

/** A delay that no edit ends while the key asks for the same scope. */
export interface InfeasibleBackoff {
  readonly scope: string;
  /** Unix time. */
  readonly untilMs: number;
}

const STATUS_TTL_MS = 86_400_000;

/** Writes a status, and moves the key to its new groups of the wait list. `conditions` and
 * `infeasible` are JSON or ''. The stored back-off stays until another replaces it, also when it is
 * over. */
const write = defineNamedScript({
  keys: ['status', 'waits'],
  args: {
    keyId: 'text',
    outcome: 'text',
    reason: 'text',
    atMs: 'number',
    conditions: 'text',
    groups: 'text',
    infeasible: 'text',
  },
  answers: { written: { count: 'number', isNews: 'flag' } },
  lua: `${GROUPS_LUA}
local lastOutcome, lastCount, lastGroups, lastInfeasible, lastReason =
  unpack(redis.call('HMGET', status, 'outcome', 'count', 'groups', 'infeasible', 'reason'))
local count = lastOutcome == outcome and (tonumber(lastCount) or 0) + 1 or 1
leaveGroups(waits, lastGroups, keyId)
joinGroups(waits, groups, keyId)
redis.call('HSET', status, 'outcome', outcome, 'count', count, 'reason', reason, 'at', atMs,
  'until', conditions, 'groups', groups, 'infeasible', infeasible == '' and lastInfeasible or infeasible)
redis.call('PEXPIRE', status, ${STATUS_TTL_MS})
-- Numbers, as of free bytes, may differ in each run that fails for the same reason.
local function sense(text) return (string.gsub(text or '', '%d+', '0')) end
return {'written', 'count', count, 'isNews', sense(lastReason) == sense(reason) and '0' or '1'}
`,
});

/** Deletes a status, and takes the key out of its groups of the wait list. */
const clear = defineNamedScript({
  keys: ['status', 'waits'],
  args: { keyId: 'text' },
  answers: { ok: {} },
  lua: `${GROUPS_LUA}
leaveGroups(waits, redis.call('HGET', status, 'groups'), keyId)
redis.call('DEL', status)
return {'ok'}
`,
});

/** Which key's status, in which installation. */
export interface StatusPlace {
  readonly prefix: string;
  readonly driver: string;
  readonly key: Pick<JobKey, 'kind' | 'uid'>;
}

/** Writes why a key waits and, in the same step, for which versions of which objects.
 * @returns how many runs in a row, this one included, had the same outcome, and whether the reason
 *          is another than before, apart from its numbers */
export async function writeStatus(
  redis: Redis,
  place: StatusPlace,
  status: Omit<RunStatus, 'count'> & { readonly until?: readonly WaitCondition[] },
): Promise<{ readonly count: number; readonly isNews: boolean }> {
  const { outcome, reason, atMs, until, infeasible } = status;
  return write.run(redis, keysOf(place), {
    keyId: keyId(place.key),
    outcome,
    reason,
    atMs,
    conditions: until === undefined ? '' : JSON.stringify(until),
    groups: waitGroups(until ?? []),
    infeasible: infeasible ? JSON.stringify(infeasible) : '',
  });
}

/** Deletes why a key waited, and for what. */
export async function clearStatus(redis: Redis, place: StatusPlace): Promise<void> {
  await clear.run(redis, keysOf(place), { keyId: keyId(place.key) });
}

function keysOf({ prefix, driver, key }: StatusPlace) {
  return { status: statusKey(prefix, driver, key.uid), waits: waitsKey(prefix, driver) };
}

/** Why a key waits; undefined when nothing is stored. */
export async function readStatus(redis: Redis, place: StatusPlace): Promise<RunStatus | undefined> {
  const { outcome, count, reason, at, infeasible } = await redis.hgetall(keysOf(place).status);
  if (outcome !== 'retry' && outcome !== 'later' && outcome !== 'running' && outcome !== 'parked')
    return undefined;
  return {
    outcome,
    count: Number(count),
    reason: reason ?? '',
    atMs: Number(at),
    ...(infeasible ? parseInfeasible(infeasible) : {}),
  };
}

function parseInfeasible(text: string): Pick<RunStatus, 'infeasible'> {
  const infeasible = parseJson(text);
  if (!isFields(infeasible)) return {};
  const { scope, untilMs } = infeasible;
  return typeof scope === 'string' && typeof untilMs === 'number'
    ? { infeasible: { scope, untilMs } }
    : {};
}

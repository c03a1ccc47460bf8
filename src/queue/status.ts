import type { Redis } from 'ioredis';

import { keyId } from './contract.ts';
import type { JobKey } from './contract.ts';
import { statusKey, waitsKey } from './names.ts';
import type { OutcomeKind, WaitsFor } from './outcome.ts';
import { defineScript } from './script.ts';
import { JOIN_GROUP, LEAVE_GROUP, waitGroup } from './wait-list.ts';

/** Why a key waits. Written by the consumer when a run did not end with `done`, removed when one does; gone after a day without a run. */
export interface RunStatus {
  readonly outcome: Exclude<OutcomeKind, 'done'>;
  /** Runs in a row that ended so. */
  readonly count: number;
  readonly reason: string;
  /** Unix time of the last run's end. */
  readonly atMs: number;
  readonly until?: WaitsFor;
}

const STATUS_TTL_MS = 86_400_000;

/** KEYS: status, groups of the wait list. ARGV: outcome, reason, now in ms, until as JSON or '', lifetime in ms, key id, group or ''. Returns how many runs in a row
 * ended with this outcome. */
const note = defineScript(`${LEAVE_GROUP}${JOIN_GROUP}
local count = 1
local before = redis.call('HMGET', KEYS[1], 'outcome', 'count', 'group')
if before[1] == ARGV[1] then
  count = (tonumber(before[2]) or 0) + 1
end
leave(KEYS[2], before[3], ARGV[6])
join(KEYS[2], ARGV[7], ARGV[6])
redis.call('HSET', KEYS[1], 'outcome', ARGV[1], 'count', count, 'reason', ARGV[2], 'at', ARGV[3], 'until', ARGV[4], 'group', ARGV[7])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return count
`);

/** KEYS: status, groups of the wait list. ARGV: key id. */
const clear = defineScript(`${LEAVE_GROUP}
leave(KEYS[2], redis.call('HGET', KEYS[1], 'group'), ARGV[1])
redis.call('DEL', KEYS[1])
`);

export interface StatusPlace {
  readonly prefix: string;
  readonly driver: string;
  readonly uid: string;
}

/** Where a key's status is written. */
export interface StatusTarget extends StatusPlace {
  readonly key: Pick<JobKey, 'kind' | 'uid'>;
}

/** Writes why a key waits, and, atomically with it, for which version of which object.
 * @returns how many runs in a row, this one included, ended with the same outcome */
export async function noteStatus(redis: Redis, target: StatusTarget, status: Omit<RunStatus, 'count'>): Promise<number> {
  const until = status.until === undefined ? '' : JSON.stringify(status.until);
  const count = await note.run(redis, keysOf(target), [
    status.outcome,
    status.reason,
    status.atMs,
    until,
    STATUS_TTL_MS,
    keyId(target.key),
    waitGroup(status.until),
  ]);
  return Number(count);
}

/** Forgets why a key waited, and that it waits for anything. */
export async function clearStatus(redis: Redis, target: StatusTarget): Promise<void> {
  await clear.run(redis, keysOf(target), [keyId(target.key)]);
}

function keysOf({ prefix, driver, uid }: StatusPlace): readonly string[] {
  return [statusKey(prefix, driver, uid), waitsKey(prefix, driver)];
}

/** Why a key waits; undefined when nothing is known. */
export async function readStatus(redis: Redis, place: StatusPlace): Promise<RunStatus | undefined> {
  const { outcome, count, reason, at, until } = await redis.hgetall(statusKey(place.prefix, place.driver, place.uid));
  if (outcome !== 'retry' && outcome !== 'later' && outcome !== 'running' && outcome !== 'parked') return undefined;
  const waitsFor = parseUntil(until ?? '');
  return { outcome, count: Number(count), reason: reason ?? '', atMs: Number(at), ...(waitsFor === undefined ? {} : { until: waitsFor }) };
}

function parseUntil(text: string): WaitsFor | undefined {
  if (text === '') return undefined;
  const { resource, namespace, name, seen } = JSON.parse(text) as Readonly<Record<string, unknown>>;
  if (typeof resource !== 'string' || typeof name !== 'string') return undefined;
  return { resource, name, ...(typeof namespace === 'string' ? { namespace } : {}), ...(typeof seen === 'string' ? { seen } : {}) };
}

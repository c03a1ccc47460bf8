import type { Redis } from 'ioredis';

import { keyId, type JobKey } from './contract.ts';
import { statusKey, waitsKey } from './key-names.ts';
import type { OutcomeKind, WaitCondition } from './outcome.ts';
import { defineScript } from '../redis/script.ts';
import { JOIN_GROUPS, LEAVE_GROUPS, waitGroups } from './wait-list.ts';

/** Why a key waits. Written by the consumer when a run did not end with `done`, removed when one
 * does; gone after a day without a run. */
export interface RunStatus {
  readonly outcome: Exclude<OutcomeKind, 'done'>;
  /** Runs in a row that ended so. */
  readonly count: number;
  readonly reason: string;
  /** Unix time of the last run's end. */
  readonly atMs: number;
  /** The objects whose change ends the wait. */
  readonly until?: readonly WaitCondition[];
  readonly holdOff?: HoldOff;
}

/** A wait that only its time ends, as long as the key's question is about the same thing. */
export interface HoldOff {
  readonly scope: string;
  /** Unix time. */
  readonly untilMs: number;
}

const STATUS_TTL_MS = 86_400_000;

/** KEYS: status, groups of the wait list. ARGV: outcome, reason, now in ms, until as JSON or '',
 * lifetime in ms, key id, groups or '', hold as JSON or ''. Returns how many runs in a row ended
 * with this outcome. A hold stays until another one takes its place: whether its time is over its
 * reader sees. */
const note = defineScript(`${LEAVE_GROUPS}${JOIN_GROUPS}
local count = 1
local before = redis.call('HMGET', KEYS[1], 'outcome', 'count', 'groups', 'hold')
local hold = ARGV[8] == '' and before[4] or ARGV[8]
if before[1] == ARGV[1] then
  count = (tonumber(before[2]) or 0) + 1
end
leave(KEYS[2], before[3], ARGV[6])
join(KEYS[2], ARGV[7], ARGV[6])
redis.call('HSET', KEYS[1], 'outcome', ARGV[1], 'count', count, 'reason', ARGV[2], 'at', ARGV[3], 'until', ARGV[4], 'groups', ARGV[7], 'hold', hold)
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return count
`);

/** KEYS: status, groups of the wait list. ARGV: key id. */
const clear = defineScript(`${LEAVE_GROUPS}
leave(KEYS[2], redis.call('HGET', KEYS[1], 'groups'), ARGV[1])
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

/** Writes why a key waits, and, atomically with it, for which versions of which objects.
 * @returns how many runs in a row, this one included, ended with the same outcome */
export async function noteStatus(
  redis: Redis,
  target: StatusTarget,
  status: Omit<RunStatus, 'count'>,
): Promise<number> {
  const count = await note.run(redis, keysOf(target), [
    status.outcome,
    status.reason,
    status.atMs,
    jsonOf(status.until),
    STATUS_TTL_MS,
    keyId(target.key),
    waitGroups(status.until ?? []),
    status.holdOff === undefined
      ? ''
      : JSON.stringify({ of: status.holdOff.scope, untilMs: status.holdOff.untilMs }),
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
  const { outcome, count, reason, at, until, hold } = await redis.hgetall(
    statusKey(place.prefix, place.driver, place.uid),
  );
  if (outcome !== 'retry' && outcome !== 'later' && outcome !== 'running' && outcome !== 'parked')
    return undefined;
  return {
    outcome,
    count: Number(count),
    reason: reason ?? '',
    atMs: Number(at),
    ...(until ? { until: JSON.parse(until) as readonly WaitCondition[] } : {}),
    ...(hold ? { holdOff: parseHoldOff(hold) } : {}),
  };
}

function jsonOf(value: object | undefined): string {
  return value === undefined ? '' : JSON.stringify(value);
}

/** Redis holds the scope under the name `of`, as earlier versions wrote it. */
function parseHoldOff(text: string): HoldOff {
  const { of, untilMs } = JSON.parse(text) as { readonly of: string; readonly untilMs: number };
  return { scope: of, untilMs };
}

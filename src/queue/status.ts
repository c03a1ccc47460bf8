import type { Redis } from 'ioredis';
import type { DriverPlace, RedisPlace } from '../redis/key-prefix.ts';
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
  /** Unix time of the first run in a row that ended for this reason, apart from its numbers. */
  readonly sinceMs: number;
  /** Whether the reason was told as news. */
  readonly isTold: boolean;
  readonly infeasible?: InfeasibleBackoff;
}

/** A delay that no edit ends while the key asks for the same scope. */
export interface InfeasibleBackoff {
  readonly scope: string;
  /** Unix time. */
  readonly untilMs: number;
}

const STATUS_TTL_MS = 86_400_000;

/** Which key's status, in which installation. */
export interface StatusPlace extends DriverPlace {
  readonly key: Pick<JobKey, 'kind' | 'uid'>;
}

/** Writes why a key waits, and for which versions of which objects. A stored back-off stays until
 * another replaces it, also when it is over.
 * @returns how many runs in a row, this one included, had the same outcome, and whether the reason
 *          is another than before, apart from its numbers, for `newsAfterMs` now: true once */
export async function writeStatus(
  redis: Redis,
  place: StatusPlace & { readonly key: JobKey },
  status: Pick<RunStatus, 'outcome' | 'reason' | 'atMs'> & {
    readonly until?: readonly WaitCondition[] | undefined;
    readonly infeasible?: InfeasibleBackoff | undefined;
    readonly newsAfterMs?: number;
  },
): Promise<{ readonly count: number; readonly isNews: boolean }> {
  const { until = [], infeasible, newsAfterMs = 0, ...run } = status;
  const last = await readStatus(redis, place);
  const { sinceMs, firstMs, isTold, ...counts } = countRuns(last, run);
  const isNews = !isTold && run.atMs - sinceMs >= newsAfterMs;
  const { status: own, waits } = keysOf(place);
  await Promise.all([
    redis.hset(own, {
      outcome: run.outcome,
      reason: run.reason,
      at: run.atMs,
      first: firstMs,
      since: sinceMs,
      ...counts,
      told: isTold || isNews ? '1' : '0',
      until: JSON.stringify(until),
      ...(infeasible === undefined ? {} : { infeasible: JSON.stringify(infeasible) }),
    }),
    redis.pexpire(own, STATUS_TTL_MS),
    until.length === 0
      ? redis.hdel(waits, keyId(place.key))
      : redis.hset(waits, keyId(place.key), JSON.stringify(place.key)),
  ]);
  return { count: counts.count, isNews };
}

/** What the runs of a key have in common, this one included. */
function countRuns(
  last: RunStatus | undefined,
  { outcome, reason, atMs }: Pick<RunStatus, 'outcome' | 'reason' | 'atMs'>,
): Pick<RunStatus, 'count' | 'alike' | 'runs' | 'firstMs' | 'sinceMs' | 'isTold'> {
  if (last === undefined)
    return { count: 1, alike: 1, runs: 1, firstMs: atMs, sinceMs: atMs, isTold: false };
  const count = last.outcome === outcome ? last.count + 1 : 1;
  const { runs, firstMs, alike, sinceMs, isTold } = last;
  return withoutNumbers(last.reason) === withoutNumbers(reason)
    ? { count, alike: alike + 1, runs: runs + 1, firstMs, sinceMs, isTold }
    : { count, alike: 1, runs: runs + 1, firstMs, sinceMs: atMs, isTold: false };
}

/** Numbers, as of free bytes, may differ in each run that fails for the same reason. */
function withoutNumbers(reason: string): string {
  return reason.replaceAll(/\d+/g, '0');
}

/** Deletes why a key waited, and for what. */
export async function clearStatus(redis: Redis, place: StatusPlace): Promise<void> {
  const { status, waits } = keysOf(place);
  await Promise.all([redis.hdel(waits, keyId(place.key)), redis.del(status)]);
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

/** Keys that are read at a time: Redis answers nobody else meanwhile. */
const STATUSES_AT_ONCE = 1_000;

/** Why many keys of a driver wait, by UID. */
export async function readStatuses(
  redis: Redis,
  { prefix, driver }: DriverPlace,
  uids: readonly string[],
): Promise<ReadonlyMap<string, RunStatus>> {
  const found = new Map<string, RunStatus>();
  for (let i = 0; i < uids.length; i += STATUSES_AT_ONCE) {
    const page = uids.slice(i, i + STATUSES_AT_ONCE);
    const reads = page.map((uid) => redis.hgetall(statusKey(prefix, driver, uid)));
    for (const [at, fields] of (await Promise.all(reads)).entries()) {
      const status = parseStatus(fields);
      if (status !== undefined) found.set(page[at] ?? '', status);
    }
  }
  return found;
}

function parseStatus(fields: Readonly<Record<string, string>>): RunStatus | undefined {
  const { outcome, count, alike, reason, at, first, runs, until, infeasible } = fields;
  const { since, told } = fields;
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
    sinceMs: Number(since ?? at),
    isTold: told === '1',
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

function parseInfeasible(text: string): Pick<RunStatus, 'infeasible'> {
  const infeasible = parseJson(text);
  if (!isFields(infeasible)) return {};
  const { scope, untilMs } = infeasible;
  return typeof scope === 'string' && typeof untilMs === 'number'
    ? { infeasible: { scope, untilMs } }
    : {};
}

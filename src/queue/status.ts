import type { Redis } from 'ioredis';
import type { DriverPlace, RedisPlace } from '../redis/key-prefix.ts';
import type { WaitCondition } from '../rules/rule.ts';
import { type JobKey, keyId, parseKey } from './contract.ts';
import { statusKey, waitsKey } from './queue-keys.ts';
import type { Outcome } from './outcome.ts';
import { isFields, parseJson } from '../runtime/json.ts';

/** Why a key waits. The consumer writes it after each run that is not `done`, and deletes it after
 * a run that is. Expires after a day without a run. */
export interface RunStatus {
  readonly outcome: Exclude<Outcome['kind'], 'done'>;
  /** How many runs in a row had this outcome. */
  readonly count: number;
  /** How many runs in a row ended for this reason, apart from its numbers. */
  readonly alike: number;
  readonly reason: string;
  /** When the last run ended, Unix ms. */
  readonly atMs: number;
  /** When the first run ended since the key was last `done` or had no status, Unix ms. */
  readonly firstMs: number;
  readonly runs: number;
  /** The objects that the key waits for; empty if no object ends its wait. */
  readonly until: readonly WaitCondition[];
  /** When the first run in a row ended for this reason, apart from its numbers, Unix ms. */
  readonly sinceMs: number;
  /** Whether the reason has been logged. */
  readonly isTold: boolean;
  readonly infeasible?: InfeasibleBackoff | undefined;
}

/** A delay that no edit ends while the scope (the class's UID) stays the same. */
export interface InfeasibleBackoff {
  readonly scope: string;
  /** Unix ms. */
  readonly untilMs: number;
}

const STATUS_TTL_MS = 86_400_000;

/** Which key's status, in which installation. */
export interface StatusPlace extends DriverPlace {
  readonly key: Pick<JobKey, 'kind' | 'uid'>;
}

/** Writes why a key waits, and for which versions of which objects. A stored back-off stays until
 * another replaces it, even after its end.
 * @returns `count`: how many runs in a row, this one included, had the same outcome. `isNews`: the
 *   reason differs from the one before (apart from its numbers) and has lasted for `newsAfterMs`;
 *   true once */
export async function writeStatus(
  redis: Redis,
  place: StatusPlace & { readonly key: JobKey },
  status: Pick<RunStatus, 'outcome' | 'reason' | 'atMs' | 'infeasible'> & {
    readonly until?: readonly WaitCondition[] | undefined;
    readonly newsAfterMs?: number;
  },
): Promise<{ readonly count: number; readonly isNews: boolean }> {
  const { newsAfterMs = 0, until = [], ...run } = status;
  const next = afterRun(await readStatus(redis, place), { ...run, until });
  const isNews = !next.isTold && next.atMs - next.sinceMs >= newsAfterMs;
  const text = JSON.stringify({ ...next, isTold: next.isTold || isNews });
  const { status: own, waits } = keysOf(place);
  await Promise.all([
    redis.set(own, text, 'PX', STATUS_TTL_MS),
    until.length === 0
      ? redis.hdel(waits, keyId(place.key))
      : redis.hset(waits, keyId(place.key), JSON.stringify(place.key)),
  ]);
  return { count: next.count, isNews };
}

/** The status after a run. */
function afterRun(
  last: RunStatus | undefined,
  run: Pick<RunStatus, 'outcome' | 'reason' | 'atMs' | 'until' | 'infeasible'>,
): RunStatus {
  const { atMs } = run;
  const news = { alike: 1, sinceMs: atMs, isTold: false };
  if (last === undefined) return { ...run, ...news, count: 1, runs: 1, firstMs: atMs };
  const isAlike = withoutNumbers(last.reason) === withoutNumbers(run.reason);
  return {
    ...last,
    ...run,
    ...(isAlike ? { alike: last.alike + 1 } : news),
    count: last.outcome === run.outcome ? last.count + 1 : 1,
    runs: last.runs + 1,
    infeasible: run.infeasible ?? last.infeasible,
  };
}

/** Numbers, for example free bytes, may differ in each run that fails for the same reason. */
function withoutNumbers(reason: string): string {
  return reason.replaceAll(/\d+/g, '0');
}

/** Deletes the status of a key. */
export async function clearStatus(redis: Redis, place: StatusPlace): Promise<void> {
  const { status, waits } = keysOf(place);
  await Promise.all([redis.hdel(waits, keyId(place.key)), redis.del(status)]);
}

/** Ends an infeasible back-off. */
export async function endInfeasible(redis: Redis, place: StatusPlace): Promise<void> {
  const status = await readStatus(redis, place);
  if (status?.infeasible === undefined) return;
  const ended: RunStatus = { ...status, infeasible: undefined };
  await redis.set(keysOf(place).status, JSON.stringify(ended), 'KEEPTTL', 'XX');
}

function keysOf({ prefix, driver, key }: StatusPlace) {
  return { status: statusKey(prefix, driver, key.uid), waits: waitsKey(prefix, driver) };
}

/** Reads the keys that wait for objects, with those objects. */
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

/** Reads why a key waits; undefined if nothing is stored. */
export async function readStatus(redis: Redis, place: StatusPlace): Promise<RunStatus | undefined> {
  return parseStatus(await redis.get(keysOf(place).status));
}

/** Reads why many keys of a driver wait, by UID. */
export async function readStatuses(
  redis: Redis,
  { prefix, driver }: DriverPlace,
  uids: readonly string[],
): Promise<ReadonlyMap<string, RunStatus>> {
  const texts = await Promise.all(uids.map((uid) => redis.get(statusKey(prefix, driver, uid))));
  const found = new Map<string, RunStatus>();
  for (const [i, uid] of uids.entries()) {
    const status = parseStatus(texts[i] ?? null);
    if (status !== undefined) found.set(uid, status);
  }
  return found;
}

function parseStatus(text: string | null): RunStatus | undefined {
  const status = text === null ? undefined : parseJson(text);
  // Only sutler writes it, but another version may have left out a field.
  return isFields(status) && typeof status['reason'] === 'string' && Array.isArray(status['until'])
    ? (status as unknown as RunStatus)
    : undefined;
}

import { type JobKey, parseKey } from '../queue/contract.ts';
import { keyPrefix, type RedisPlace } from '../redis/key-prefix.ts';
import { replaceHash } from '../redis/replace-hash.ts';
import { listIn } from '../runtime/json.ts';

/* The unfinished claims and volumes of a driver. The leading ingest keeps them in a hash in Redis
 * (ingest/pending-report.ts), so that readers need neither the API server nor every queue. An
 * object is added after it has waited for a second, so short waits cost nothing. */

/** The class of the claim does not exist. */
export const NO_CLASS = 'no-class';
/** kube-controller-manager has not asked for a volume. */
export const NOT_ANNOTATED = 'not-annotated';
/** Why an object has no job; '' if it has one. */
export type PendingWhy = '' | typeof NO_CLASS | typeof NOT_ANNOTATED;

/** An object that waits. */
export interface PendingEntry {
  readonly key: JobKey;
  /** The claim's class; '' for a volume, or if the claim names none. */
  readonly className: string;
  /** Unix ms: when the claim was created, or when ingest first saw that the volume needs its
   * deletion; NaN: take the time when it is first seen. */
  readonly sinceMs: number;
  readonly why: PendingWhy;
}

/** Hash of the objects that wait, by UID. */
function pendingKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:pending:${driver}`;
}

function encodeEntry({ key, className, sinceMs, why }: PendingEntry): string {
  const { kind, namespace, name, claimUid = '' } = key;
  return JSON.stringify([kind, namespace, name, className, sinceMs, why, claimUid]);
}

/** Writes the entries, if Redis has others. Rejects while Redis can't be reached.
 * @returns the entries that are new or have changed */
export async function writePending(
  { redis, prefix, driver }: RedisPlace,
  entries: readonly PendingEntry[],
): Promise<readonly PendingEntry[]> {
  const hash = pendingKey(prefix, driver);
  const known = await redis.hgetall(hash);
  const next = new Map(entries.map((entry) => [entry.key.uid, encodeEntry(entry)]));
  const changed = entries.filter(({ key: { uid } }) => known[uid] !== next.get(uid));
  if (changed.length > 0 || Object.keys(known).length !== next.size)
    await replaceHash(redis, hash, next);
  return changed;
}

/** All entries of a driver. */
export async function readPending(place: RedisPlace): Promise<readonly PendingEntry[]> {
  const fields = await place.redis.hgetall(pendingKey(place.prefix, place.driver));
  return Object.entries(fields).flatMap(([uid, text]) => parseEntry(uid, text) ?? []);
}

/** The entry of one object; undefined if it is not pending. */
export async function readPendingEntry(
  { redis, prefix, driver }: RedisPlace,
  uid: string,
): Promise<PendingEntry | undefined> {
  return parseEntry(uid, (await redis.hget(pendingKey(prefix, driver), uid)) ?? '');
}

function parseEntry(uid: string, text: string): PendingEntry | undefined {
  const [kind, namespace, name, className, sinceMs, why, claimUid] = listIn(text);
  const parsed = parseKey({ kind, uid, namespace, name, claimUid });
  if (!parsed.ok || typeof className !== 'string' || typeof sinceMs !== 'number') return undefined;
  const known = why === NO_CLASS || why === NOT_ANNOTATED ? why : '';
  return { key: parsed.key, className, sinceMs, why: known };
}

import type { Redis } from 'ioredis';
import { isJobKind, type JobKind } from './contract.ts';
import { registryKey } from './queue-keys.ts';
import { isFields, parseJson } from '../runtime/json.ts';

/** A queue of this installation. Producers register their queues in a hash in Redis, where the
 * dashboard and the operator's commands find them. */
export interface QueueEntry {
  readonly name: string;
  readonly driver: string;
  readonly kind: JobKind;
}

/** Registers queues; one that is registered already stays as it is. */
export async function registerQueues(
  redis: Redis,
  prefix: string,
  entries: readonly QueueEntry[],
): Promise<void> {
  await redis.hset(
    registryKey(prefix),
    new Map(entries.map(({ name, driver, kind }) => [name, JSON.stringify({ driver, kind })])),
  );
}

/** The queues of this installation, sorted by name. Leaves out entries that can't be read: a later
 * version wrote them. */
export async function listQueues(redis: Redis, prefix: string): Promise<QueueEntry[]> {
  const fields = await redis.hgetall(registryKey(prefix));
  return Object.entries(fields)
    .flatMap(([name, text]) => parseEntry(name, text))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** The drivers of this installation: each that a producer has registered a queue of. */
export async function listDrivers(redis: Redis, prefix: string): Promise<readonly string[]> {
  const entries = await listQueues(redis, prefix);
  return [...new Set(entries.map(({ driver }) => driver))];
}

function parseEntry(name: string, text: string): QueueEntry[] {
  const entry = parseJson(text);
  if (!isFields(entry)) return [];
  const { driver, kind } = entry;
  return typeof driver === 'string' && isJobKind(kind) ? [{ name, driver, kind }] : [];
}

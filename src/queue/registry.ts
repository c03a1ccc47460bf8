import type { Redis } from 'ioredis';

import { isJobKind, type JobKind } from './contract.ts';
import { registryKey } from './key-names.ts';

/** A queue of this installation. */
export interface QueueEntry {
  readonly name: string;
  readonly driver: string;
  readonly kind: JobKind;
}

/** Writes queues into the registry; writing one again is harmless. */
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

/** The queues of this installation, by name. Entries of a later version that can't be read are left
 * out. */
export async function listQueues(redis: Redis, prefix: string): Promise<QueueEntry[]> {
  const fields = await redis.hgetall(registryKey(prefix));
  return Object.entries(fields)
    .flatMap(([name, text]) => parseEntry(name, text))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

function parseEntry(name: string, text: string): QueueEntry[] {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null || !('driver' in value) || !('kind' in value))
      return [];
    const { driver, kind } = value;
    return typeof driver === 'string' && isJobKind(kind) ? [{ name, driver, kind }] : [];
  } catch {
    return [];
  }
}

import type { Redis } from 'ioredis';
import { LIMIT_FIELDS, metaKey } from './bullmq-layout.ts';
import type { JobKind } from './contract.ts';
import { queueName } from './key-names.ts';

/** What all workers together may do for each queue of a driver; 0 = no limit. */
export interface QueueLimits {
  readonly maxInFlight: number;
  readonly maxPerSecond: number;
}

/** The kinds whose runs call the driver to change something. */
const LIMITED: readonly JobKind[] = ['claim', 'volume'];
const SECOND_MS = 1_000;

type LimitField = (typeof LIMIT_FIELDS)[number];

/** Stores the limits of the driver's queues, or removes them. BullMQ's workers read them whenever
 * they take a job, so a change takes effect at once.
 * @returns whether another limit was stored before */
export async function storeLimits(
  redis: Redis,
  place: { readonly prefix: string; readonly driver: string },
  limits: QueueLimits,
): Promise<boolean> {
  const wanted = fieldsOf(limits);
  const changes = await Promise.all(
    LIMITED.map(async (kind) => {
      const key = metaKey(place.prefix, queueName(kind, place.driver));
      const stored = await redis.hmget(key, ...LIMIT_FIELDS);
      if (LIMIT_FIELDS.every((field, i) => (stored[i] ?? undefined) === wanted.get(field)))
        return false;
      const surplus = LIMIT_FIELDS.filter((field) => !wanted.has(field));
      if (surplus.length > 0) await redis.hdel(key, ...surplus);
      if (wanted.size > 0) await redis.hset(key, wanted);
      return true;
    }),
  );
  return changes.includes(true);
}

function fieldsOf({ maxInFlight, maxPerSecond }: QueueLimits): Map<LimitField, string> {
  const fields = new Map<LimitField, string>();
  if (maxInFlight > 0) fields.set('concurrency', String(maxInFlight));
  if (maxPerSecond > 0) fields.set('max', String(maxPerSecond)).set('duration', String(SECOND_MS));
  return fields;
}

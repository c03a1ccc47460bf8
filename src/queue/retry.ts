import type { Redis } from 'ioredis';
import type { DriverPlace } from '../redis/key-prefix.ts';
import { type JobKind, keyId, type KeyUid } from './contract.ts';
import { queueName, statusKey } from './queue-keys.ts';
import { promoteUnlessRunning, useQueue } from './queues.ts';

/** What came of a retry: `waiting` if the key has no job that waits for a time. */
export type Retried = Awaited<ReturnType<typeof promoteUnlessRunning>>;

/** Has the jobs of keys run now, whatever they wait for, an infeasible back-off included. Rejects
 * while Redis can't be reached.
 * @returns what came of each, by UID */
export async function retryNow(
  redis: Redis,
  { prefix, driver }: DriverPlace,
  keys: readonly KeyUid[],
): Promise<ReadonlyMap<string, Retried>> {
  const retried = new Map<string, Retried>();
  const byKind = new Map<JobKind, KeyUid[]>();
  for (const key of keys) byKind.set(key.kind, [...(byKind.get(key.kind) ?? []), key]);
  for (const [kind, ofKind] of byKind)
    await useQueue(redis, { prefix, queue: queueName(kind, driver) }, async (queue) => {
      for (const key of ofKind) {
        await redis.hdel(statusKey(prefix, driver, key.uid), 'infeasible');
        retried.set(key.uid, await promoteUnlessRunning(queue, keyId(key)));
      }
    });
  return retried;
}

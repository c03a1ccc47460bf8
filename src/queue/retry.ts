import type { Redis } from 'ioredis';
import type { DriverPlace } from '../redis/key-prefix.ts';
import { keyId, type KeyUid } from './contract.ts';
import { queueName } from './queue-keys.ts';
import { promoteUnlessRunning, useQueue } from './queues.ts';
import { endInfeasible } from './status.ts';

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
  for (const kind of new Set(keys.map((key) => key.kind)))
    await useQueue(redis, { prefix, queue: queueName(kind, driver) }, async (queue) => {
      for (const key of keys.filter((each) => each.kind === kind)) {
        await endInfeasible(redis, { prefix, driver, key });
        retried.set(key.uid, await promoteUnlessRunning(queue, keyId(key)));
      }
    });
  return retried;
}

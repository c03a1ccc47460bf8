import { Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { keyPrefix } from '../redis/key-names.ts';
import { type JobKey, parseJob } from './contract.ts';
import type { QueuePlace } from './key-names.ts';

/** The keys of a queue that wait or are delayed, those that run next first.
 * @param most  how many at most
 * @throws what Redis answers, or that it can't be reached */
export async function waitingKeys(
  connection: Redis,
  { prefix, queue }: QueuePlace,
  most: number,
): Promise<readonly JobKey[]> {
  const reader = new Queue(queue, {
    connection,
    prefix: keyPrefix(prefix),
    skipMetasUpdate: true,
  });
  try {
    const jobs = await reader.getJobs(['wait', 'prioritized', 'delayed'], 0, most - 1, true);
    return jobs.slice(0, most).flatMap(({ data }) => {
      const parsed = parseJob(data);
      return parsed.ok ? [parsed.key] : [];
    });
  } finally {
    // Otherwise its listeners stay on the connection.
    await reader.close();
  }
}

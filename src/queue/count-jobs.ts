import type { Redis } from 'ioredis';
import { queueRoot } from './bullmq-layout.ts';
import type { QueuePlace } from './key-names.ts';

/** How many keys of a queue have a job: it waits, is delayed, or runs. */
export async function countJobs(redis: Redis, { prefix, queue }: QueuePlace): Promise<number> {
  const root = queueRoot(prefix, queue);
  const counts = await Promise.all([
    redis.llen(`${root}wait`),
    redis.llen(`${root}active`),
    redis.zcard(`${root}prioritized`),
    redis.zcard(`${root}delayed`),
  ]);
  return counts.reduce((sum, count) => sum + count, 0);
}

import { Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { keyPrefix } from '#src/redis/key-prefix.ts';
import { queueName } from '#src/queue/queue-keys.ts';
import type { Member } from './testbed.ts';
import type { Workload } from './workload.ts';

/** Memory that Redis needs for one claim under way. */
export interface JobBytes {
  /** Hash of a waiting job. */
  readonly job: number;
  /** Hash of a job while its call is at the driver. */
  readonly marked: number;
}

interface JobBytesOptions {
  readonly redis: Redis;
  readonly prefix: string;
  readonly driver: string;
  readonly members: readonly Member[];
  readonly workload: Workload;
  /** Name of the claim to create. */
  readonly claim: string;
  readonly pause: (ms: number) => Promise<void>;
}

/** Creates a claim while the jobs processes are stopped, to measure a waiting job; then stops the
 * driver and continues them, to measure a job with a call under way. At the end all processes
 * continue. */
export async function measureJobBytes(o: JobBytesOptions): Promise<JobBytes> {
  const prefix = keyPrefix(o.prefix);
  const queue = new Queue(queueName('claim', o.driver), {
    connection: o.redis,
    prefix,
    skipMetasUpdate: true,
  });
  const jobs = o.members.filter(({ name }) => name.startsWith('jobs'));
  const drivers = o.members.filter(({ name }) => name === 'sandbox-driver');
  const signal = (members: readonly Member[], name: 'SIGSTOP' | 'SIGCONT'): void =>
    members.forEach(({ pid }) => process.kill(pid, name));
  const bytes = async (key: string): Promise<number> => Number(await o.redis.memory('USAGE', key));

  signal(jobs, 'SIGSTOP');
  try {
    await o.workload.createOnly(o.claim);
    const waiting = await poll(
      o.pause,
      async () => (await queue.getJobs(['waiting', 'prioritized'], 0, 0))[0],
    );
    const key = queue.toKey(waiting.id ?? '');
    const job = await bytes(key);
    signal(drivers, 'SIGSTOP');
    signal(jobs, 'SIGCONT');
    await poll(o.pause, async () => (await o.redis.hget(key, 'until')) ?? undefined);
    return { job, marked: await bytes(key) };
  } finally {
    signal(drivers, 'SIGCONT');
    signal(jobs, 'SIGCONT');
    await queue.close();
  }
}

async function poll<T>(
  pause: (ms: number) => Promise<void>,
  read: () => Promise<T | undefined>,
): Promise<T> {
  for (let tries = 0; tries < 500; tries += 1) {
    const value = await read();
    if (value !== undefined) return value;
    await pause(10);
  }
  throw new Error('a claim did not show up in Redis within 5 s');
}

import { ErrorCode, Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { keyPrefix } from '../redis/key-prefix.ts';
import { type JobKey, type JobKind, parseJob } from './contract.ts';
import { queueName, type QueuePlace } from './queue-keys.ts';

/* Single calls on a queue, by BullMQ's public interface. */

/** Opens a queue for some calls, and closes it afterwards.
 * @throws what the calls throw, and that Redis can't be reached */
export async function useQueue<T>(
  connection: Redis,
  { prefix, queue }: QueuePlace,
  calls: (opened: Queue) => Promise<T>,
): Promise<T> {
  const opened = new Queue(queue, {
    connection,
    prefix: keyPrefix(prefix),
    skipMetasUpdate: true,
    // It would send INFO each time.
    skipVersionCheck: true,
  });
  try {
    return await calls(opened);
  } finally {
    // Otherwise its listeners stay on the connection.
    await opened.close();
  }
}

/** Promotes the job of a key.
 * @returns what became of it: `running` and `waiting` were not delayed, `absent` is not there */
export async function promoteKey(
  queue: Queue,
  keyId: string,
): Promise<'promoted' | 'running' | 'waiting' | 'absent'> {
  const jobId = await queue.getDeduplicationJobId(keyId);
  if (jobId === null) return 'absent';
  if (await promoteJob(queue, jobId)) return 'promoted';
  const state = await queue.getJobState(jobId);
  if (state === 'active') return 'running';
  return state === 'unknown' ? 'absent' : 'waiting';
}

/** @returns whether the job was delayed, and is not any more */
async function promoteJob(queue: Queue, jobId: string): Promise<boolean> {
  try {
    await queue.getBackend().promote(jobId);
    return true;
  } catch (error) {
    if (codeOf(error) === ErrorCode.JobNotInState) return false;
    throw error;
  }
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}

/** How many keys of a queue have a job: it waits, is delayed, or runs. */
export function countJobs(redis: Redis, place: QueuePlace): Promise<number> {
  return useQueue(redis, place, (queue) =>
    queue.getJobCountByTypes('wait', 'active', 'prioritized', 'delayed'),
  );
}

/** How many jobs a worker could take now: those that wait and the delayed ones that are due; 0 while
 * the queue is paused or at one of its limits. */
export function countTakeableJobs(redis: Redis, place: QueuePlace): Promise<number> {
  return useQueue(redis, place, async (queue) => {
    const [isPaused, isMaxed, limitedMs, waiting, due] = await Promise.all([
      queue.isPaused(),
      queue.isMaxed(),
      queue.getRateLimitTtl(),
      queue.getJobCountByTypes('wait', 'prioritized'),
      queue.getDelayedCount(Date.now()),
    ]);
    return isPaused || isMaxed || limitedMs > 0 ? 0 : waiting + due;
  });
}

/** The keys of a queue that wait or are delayed, those that run next first.
 * @param most  how many at most */
export function waitingKeys(
  redis: Redis,
  place: QueuePlace,
  most: number,
): Promise<readonly JobKey[]> {
  return useQueue(redis, place, async (queue) => {
    const jobs = await queue.getJobs(['wait', 'prioritized', 'delayed'], 0, most - 1, true);
    return jobs.slice(0, most).flatMap(({ data }) => {
      const parsed = parseJob(data);
      return parsed.ok ? [parsed.key] : [];
    });
  });
}

/** What all workers together may do for each queue of a driver; 0 = no limit. */
export interface QueueLimits {
  readonly maxInFlight: number;
  readonly maxPerSecond: number;
}

/** The kinds whose runs call the driver to change something. */
const LIMITED: readonly JobKind[] = ['claim', 'volume'];
const SECOND_MS = 1_000;

/** Stores the limits of the driver's queues, or removes them. Workers read them whenever they take a
 * job, so a change takes effect at once.
 * @returns whether another limit was stored before */
export async function storeLimits(
  redis: Redis,
  { prefix, driver }: { readonly prefix: string; readonly driver: string },
  limits: QueueLimits,
): Promise<boolean> {
  const changes = LIMITED.map((kind) =>
    useQueue(redis, { prefix, queue: queueName(kind, driver) }, (queue) => store(queue, limits)),
  );
  return (await Promise.all(changes)).includes(true);
}

async function store(queue: Queue, { maxInFlight, maxPerSecond }: QueueLimits): Promise<boolean> {
  const [concurrency, rate] = await Promise.all([
    queue.getGlobalConcurrency(),
    queue.getGlobalRateLimit(),
  ]);
  if (
    (concurrency ?? 0) === maxInFlight &&
    (rate?.max ?? 0) === maxPerSecond &&
    (rate?.duration ?? SECOND_MS) === SECOND_MS
  )
    return false;
  await (maxInFlight === 0
    ? queue.removeGlobalConcurrency()
    : queue.setGlobalConcurrency(maxInFlight));
  await (maxPerSecond === 0
    ? queue.removeGlobalRateLimit()
    : queue.setGlobalRateLimit(maxPerSecond, SECOND_MS));
  return true;
}

import { ErrorCode, type Job, Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { keyPrefix, type RedisPlace } from '../redis/key-prefix.ts';
import { JOB_KINDS, type JobKind, type KeyUid, workId } from './contract.ts';
import { driversKey, queueName, queueRoot } from './queue-keys.ts';
import { endInfeasible } from './status.ts';

// The queues of an installation for readers outside a worker: their drivers, contents and limits,
// and the promotion of a job. All by BullMQ's public interface.

/** Adds a driver to the list that the dashboard and the operator's commands read.
 * @param namespace  of the driver's Lease and its journal */
export async function registerDriver(
  { redis, prefix, driver }: RedisPlace,
  namespace: string,
): Promise<void> {
  await redis.hset(driversKey(prefix), driver, namespace);
}

/** The drivers of this installation that an ingest has led, sorted. */
export async function listDrivers(redis: Redis, prefix: string): Promise<readonly string[]> {
  return Object.keys(await redis.hgetall(driversKey(prefix))).sort();
}

/** The namespace of a driver's Lease and its journal; '' before the driver had a leader. */
export async function namespaceOf({ redis, prefix, driver }: RedisPlace): Promise<string> {
  return (await redis.hget(driversKey(prefix), driver)) ?? '';
}

/** Opens a queue for some calls, and closes it afterwards.
 * @throws what the calls throw, and if Redis can't be reached */
export async function useQueue<T>(
  { redis, prefix, driver }: RedisPlace,
  kind: JobKind,
  calls: (opened: Queue) => Promise<T>,
): Promise<T> {
  const opened = new Queue(queueName(kind, driver), {
    connection: redis,
    prefix: keyPrefix(prefix),
    skipMetasUpdate: true,
    // The check would send INFO each time.
    skipVersionCheck: true,
  });
  // The connection reports its errors; BullMQ would write them to the console.
  opened.on('error', () => undefined);
  try {
    return await calls(opened);
  } finally {
    // Removes the queue's listeners from the connection.
    await opened.close();
  }
}

/** The result of a retry. `running`: a worker runs the job, or has just delayed it. `waiting`: the
 * job was not delayed, or there is none. */
export type Retried = 'promoted' | 'running' | 'waiting';

/** Makes the jobs of keys run now, whatever they wait for, even in an infeasible back-off. Rejects
 * while Redis can't be reached.
 * @returns the result of each, by UID */
export async function retryNow(
  place: RedisPlace,
  keys: readonly KeyUid[],
): Promise<ReadonlyMap<string, Retried>> {
  const retried = new Map<string, Retried>();
  for (const kind of new Set(keys.map((key) => key.kind)))
    await useQueue(place, kind, async (queue) => {
      for (const key of keys.filter((each) => each.kind === kind)) {
        await endInfeasible(place.redis, { ...place, key });
        retried.set(key.uid, await promoteUnlessRunning(queue, workId(key)));
      }
    });
  return retried;
}

/** Promotes a job if it is delayed, and does nothing otherwise. */
export async function promoteUnlessRunning(queue: Queue, jobId: string): Promise<Retried> {
  if (await promoteJob(queue, jobId)) return 'promoted';
  const state = await queue.getJobState(jobId);
  // A run has delayed the job after the promotion failed.
  return state === 'active' || state === 'delayed' ? 'running' : 'waiting';
}

const NOT_DELAYED: readonly unknown[] = [ErrorCode.JobNotInState, ErrorCode.JobNotExist];

/** @returns whether the job was delayed, and is not any more */
export async function promoteJob(queue: Queue, jobId: string): Promise<boolean> {
  try {
    await queue.getBackend().promote(jobId);
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && NOT_DELAYED.includes(error.code)) return false;
    throw error;
  }
}

/** The job of a key, for people to look at. */
export interface JobState {
  readonly isActive: boolean;
  /** How long after its last run the next run comes; undefined: as soon as a worker is free. */
  readonly delayMs: number | undefined;
}

/** Reads the job of a key; undefined if there is none. */
export function readJob(place: RedisPlace, key: KeyUid): Promise<JobState | undefined> {
  return useQueue(place, key.kind, async (queue) => {
    const job: Job | undefined = await queue.getJob(workId(key));
    if (job === undefined || job.finishedOn !== undefined) return undefined;
    const isDelayed = await job.isDelayed();
    // Also true for some milliseconds after a promotion.
    const isActive = !isDelayed && job.processedOn !== undefined;
    return { isActive, delayMs: isDelayed ? job.delay : undefined };
  });
}

/** The ids of a queue's active jobs, including those of workers that died. */
export function activeJobIds(
  { redis, prefix, driver }: RedisPlace,
  kind: JobKind,
): Promise<readonly string[]> {
  return redis.lrange(`${queueRoot(prefix, queueName(kind, driver))}active`, 0, -1);
}

/** How many jobs of a queue no worker has taken yet; delayed ones are not counted. */
export function countWaiting(place: RedisPlace, kind: JobKind): Promise<number> {
  return useQueue(place, kind, (queue) => queue.getJobCountByTypes('wait', 'prioritized'));
}

/** What all workers together may do for each queue of a driver; 0: no limit. */
export interface QueueLimits {
  readonly maxInFlight: number;
  readonly maxPerSecond: number;
}

const SECOND_MS = 1_000;

/** Stores the limits of the driver's queues, or removes them. Workers read them whenever they take
 * a job, so a change takes effect at once. */
export async function storeLimits(
  place: RedisPlace,
  { maxInFlight, maxPerSecond }: QueueLimits,
): Promise<void> {
  for (const kind of JOB_KINDS)
    await useQueue(place, kind, async (queue) => {
      await (maxInFlight === 0
        ? queue.removeGlobalConcurrency()
        : queue.setGlobalConcurrency(maxInFlight));
      await (maxPerSecond === 0
        ? queue.removeGlobalRateLimit()
        : queue.setGlobalRateLimit(maxPerSecond, SECOND_MS));
    });
}

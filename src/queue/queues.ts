import { ErrorCode, type Job, Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { type DriverPlace, keyPrefix } from '../redis/key-prefix.ts';
import { isFields, parseJson } from '../runtime/json.ts';
import { isJobKind, JOB_KINDS, type JobKind } from './contract.ts';
import { queueName, type QueuePlace, registryKey, queueRoot } from './queue-keys.ts';

// The queues of an installation from outside: which there are, what they hold, their limits, and
// the promotion of a job. All by BullMQ's public interface.

/** A queue of this installation. Producers register their queues in a hash in Redis, where the
 * dashboard and the operator's commands find them. */
export interface QueueEntry {
  readonly name: string;
  readonly driver: string;
  readonly kind: JobKind;
  /** Namespace of the driver's Lease and its journal. */
  readonly namespace?: string;
}

/** Registers queues. */
export async function registerQueues(
  redis: Redis,
  prefix: string,
  entries: readonly QueueEntry[],
): Promise<void> {
  await redis.hset(
    registryKey(prefix),
    new Map(entries.map(({ name, ...entry }) => [name, JSON.stringify(entry)])),
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
  const { driver, kind, namespace } = entry;
  if (typeof driver !== 'string' || !isJobKind(kind)) return [];
  return [{ name, driver, kind, ...(typeof namespace === 'string' ? { namespace } : {}) }];
}

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
  // The connection reports its errors, and BullMQ would write this one to the console.
  opened.on('error', () => undefined);
  try {
    return await calls(opened);
  } finally {
    // Otherwise its listeners stay on the connection.
    await opened.close();
  }
}

/** Promotes the job of a key if it is delayed, and does nothing otherwise.
 * @returns `running` while a worker runs it, which may be about to delay it, or has just done so;
 *          `waiting` where it was not delayed, or there is none */
export async function promoteUnlessRunning(
  queue: Queue,
  keyId: string,
): Promise<'promoted' | 'running' | 'waiting'> {
  const jobId = jobIdOf(keyId);
  if (await promoteJob(queue, jobId)) return 'promoted';
  const state = await queue.getJobState(jobId);
  // Delayed since it could not be promoted.
  return state === 'active' || state === 'delayed' ? 'running' : 'waiting';
}

/** The id of the job that a key may have (contract.ts, keyId). */
function jobIdOf(keyId: string): string {
  return keyId.slice(keyId.indexOf('/') + 1);
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
  /** How long after its last run the next one comes; undefined: as soon as a worker is free. */
  readonly delayMs: number | undefined;
}

/** The job of a key; undefined: it has none. */
export function readJob(
  redis: Redis,
  place: QueuePlace,
  keyId: string,
): Promise<JobState | undefined> {
  return useQueue(redis, place, async (queue) => {
    const job: Job | undefined = await queue.getJob(jobIdOf(keyId));
    if (job === undefined || job.finishedOn !== undefined) return undefined;
    const isDelayed = await job.isDelayed();
    // For a moment also one that has just been promoted.
    const isActive = !isDelayed && job.processedOn !== undefined;
    return { isActive, delayMs: isDelayed ? job.delay : undefined };
  });
}

/** The ids of the jobs of a queue that a worker runs, or ran when it died. */
export function activeJobIds(redis: Redis, place: QueuePlace): Promise<readonly string[]> {
  return redis.lrange(`${queueRoot(place.prefix, place.queue)}active`, 0, -1);
}

/** How many keys of a queue have a job: it waits, is delayed, or runs. */
export function countJobs(redis: Redis, place: QueuePlace): Promise<number> {
  return useQueue(redis, place, (queue) =>
    queue.getJobCountByTypes('wait', 'active', 'prioritized', 'delayed'),
  );
}

/** How many jobs of a queue a worker runs. */
export function countActive(redis: Redis, place: QueuePlace): Promise<number> {
  return useQueue(redis, place, (queue) => queue.getActiveCount());
}

/** How many jobs of a queue no worker has taken yet; delayed ones are not counted. */
export function countWaiting(redis: Redis, place: QueuePlace): Promise<number> {
  return useQueue(redis, place, (queue) => queue.getJobCountByTypes('wait', 'prioritized'));
}

/** What all workers together may do for each queue of a driver; 0 = no limit. */
export interface QueueLimits {
  readonly maxInFlight: number;
  readonly maxPerSecond: number;
}

const SECOND_MS = 1_000;

/** Stores the limits of the driver's queues, or removes them. Workers read them whenever they take
 * a job, so a change takes effect at once.
 * @returns whether another limit was stored before */
export async function storeLimits(
  redis: Redis,
  { prefix, driver }: DriverPlace,
  limits: QueueLimits,
): Promise<boolean> {
  const changes = JOB_KINDS.map((kind) =>
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

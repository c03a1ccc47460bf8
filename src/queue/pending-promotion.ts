import type { Job, Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { pendingPromotionKey, type QueuePlace } from './queue-keys.ts';

/* Promotion of a job whose run is under way. BullMQ promotes only jobs that are delayed already, and
 * keeps a hint that comes during a run until the job is complete, which may be many back-offs away.
 * So `enqueueNow` leaves a mark, a pending promotion, with the number of the job's run, and the
 * consumer promotes the job when the end of that run has delayed it. A later run began after the
 * hint, so it needs no promotion. */

/** Longer than any run. */
const MARK_TTL_MS = 3_600_000;
/** Written by earlier versions. */
const ANY_RUN = '1';

/** Leaves a pending promotion for the run of this key that may be under way. To be called before the
 * key is added: then either the end of the run finds the mark, or BullMQ finds a delayed job and
 * promotes it. */
export async function markPendingPromotion(
  redis: Redis,
  place: QueuePlace,
  queue: Queue,
  keyId: string,
): Promise<void> {
  const jobId = await queue.getDeduplicationJobId(keyId);
  const job = jobId === null ? undefined : await queue.getJob(jobId);
  if (job === undefined || job.attemptsStarted === 0) return;
  await redis.set(markOf(place, job), runOf(job), 'PX', MARK_TTL_MS);
}

/** Promotes a job, which the end of its run has just delayed, if that run has a pending
 * promotion. */
export async function takePendingPromotion(
  redis: Redis,
  place: QueuePlace,
  job: Job,
): Promise<void> {
  const marked = await redis.get(markOf(place, job));
  if (marked === runOf(job) || marked === ANY_RUN) await job.promote();
}

function markOf({ prefix, queue }: QueuePlace, { id = '' }: Job): string {
  return pendingPromotionKey(prefix, queue, id);
}

function runOf({ attemptsStarted }: Job): string {
  return `run ${attemptsStarted}`;
}

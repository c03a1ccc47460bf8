import type { Redis } from 'ioredis';
import { defineScript } from '../redis/script.ts';
import { DROP_NEXT_HINT, IS_ACTIVE, JOB_OF, PROMOTE, queueRoot } from './bullmq-layout.ts';
import { pendingPromotionKey } from './key-names.ts';

/* Promotion of a key's job, also while its run is under way. BullMQ promotes only jobs that are
 * delayed already. A hint that comes during a run it keeps for after the job's completion, which
 * may be many back-offs away, and of several hints only the last. So `enqueueNow` leaves a mark
 * beside the job that it met, a pending promotion, and the consumer promotes the job when the run's
 * end has delayed it. Builds on bullmq-layout.ts. */

/** Longer than any run. */
const MARK_TTL_MS = 3_600_000;

/** Marks the key's job if a worker runs it.
 * KEYS: 1 root of the queue's keys, 2 beginning of the marks' keys.
 * ARGV: 1 key id, 2 lifetime of a mark in ms. */
const mark = defineScript(`${JOB_OF}${IS_ACTIVE}
local root, marks, keyId, ttlMs = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local jobId = jobOf(root, keyId)
if jobId and isActive(root, jobId) then redis.call('SET', marks .. jobId, '1', 'PX', ttlMs) end
`);

/** Removes the mark of a job and promotes the job, if it was marked. The next run answers the hints
 * of the last run too, so BullMQ need not keep one.
 * KEYS: 1 root of the queue's keys, 2 mark. ARGV: 1 job id, 2 key id, 3 now in Unix ms. */
const take = defineScript(`${PROMOTE}${DROP_NEXT_HINT}
local root, mark, jobId, keyId, nowMs = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
if redis.call('DEL', mark) == 1 and promote(root, jobId, nowMs) then
  dropNextHint(root, keyId)
end
`);

/** Promotes the key's job if it is delayed.
 * KEYS: 1 root of the queue's keys. ARGV: 1 key id, 2 now in Unix ms. */
const promoteKey = defineScript(`${JOB_OF}${PROMOTE}
local root, keyId, nowMs = KEYS[1], ARGV[1], ARGV[2]
local jobId = jobOf(root, keyId)
if jobId then promote(root, jobId, nowMs) end
`);

export interface QueuePlace {
  readonly prefix: string;
  readonly queue: string;
}

/** Leaves a pending promotion at the run of this key, if one is under way. To be called before the
 * key is added: then either the run's end finds the mark, or BullMQ finds a delayed job and
 * promotes it. */
export async function markPendingPromotion(
  redis: Redis,
  { prefix, queue }: QueuePlace,
  keyId: string,
): Promise<void> {
  const keys = [queueRoot(prefix, queue), pendingPromotionKey(prefix, queue, '')];
  await mark.run(redis, keys, [keyId, MARK_TTL_MS]);
}

/** Promotes the key's job if it is delayed, and does nothing otherwise. */
export async function promoteDelayed(
  redis: Redis,
  { prefix, queue }: QueuePlace,
  keyId: string,
  nowMs: number,
): Promise<void> {
  await promoteKey.run(redis, [queueRoot(prefix, queue)], [keyId, nowMs]);
}

/** Promotes a job that has just been delayed if it has a pending promotion. */
export async function takePendingPromotion(
  redis: Redis,
  place: QueuePlace & { readonly jobId: string; readonly keyId: string },
  nowMs: number,
): Promise<void> {
  const { prefix, queue, jobId, keyId } = place;
  const keys = [queueRoot(prefix, queue), pendingPromotionKey(prefix, queue, jobId)];
  await take.run(redis, keys, [jobId, keyId, nowMs]);
}

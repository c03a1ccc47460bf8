import type { Redis } from 'ioredis';
import { defineNamedScript } from '../redis/named-script.ts';
import { QUEUE_LUA, queueRoot } from './bullmq-layout.ts';
import { pendingPromotionKey, type QueuePlace } from './key-names.ts';

/* Promotion of a key's job, also while its run is under way. BullMQ promotes only jobs that are
 * already delayed. It keeps a hint that comes during a run until the job is complete, which may be
 * many back-offs away, and of several hints only the last. So `enqueueNow` marks the job that is
 * running, a pending promotion, and the consumer promotes the job when the end of the run has
 * delayed it. Builds on bullmq-layout.ts. */

/** Longer than any run. */
const MARK_TTL_MS = 3_600_000;

/** Marks the key's job if a worker runs it. `marks`: what the keys of all marks begin with. */
const mark = defineNamedScript({
  keys: ['root', 'marks'],
  args: { keyId: 'text' },
  answers: { ok: {} },
  lua: `${QUEUE_LUA}
local jobId = jobOf(root, keyId)
if jobId and isActive(root, jobId) then
  redis.call('SET', marks .. jobId, '1', 'PX', ${MARK_TTL_MS})
end
return {'ok'}
`,
});

/** Promotes a job that is marked, and removes the mark. The next run serves the hints that came
 * during the last run too, so BullMQ need not keep one. */
const promoteMarked = defineNamedScript({
  keys: ['root', 'mark'],
  args: { jobId: 'text', keyId: 'text', nowMs: 'number' },
  answers: { ok: {} },
  lua: `${QUEUE_LUA}
if redis.call('DEL', mark) == 1 and promote(root, jobId, nowMs) then dropNextHint(root, keyId) end
return {'ok'}
`,
});

const promoteScript = defineNamedScript({
  keys: ['root'],
  args: { keyId: 'text', nowMs: 'number' },
  answers: { ok: {} },
  lua: `${QUEUE_LUA}
local jobId = jobOf(root, keyId)
if jobId then promote(root, jobId, nowMs) end
return {'ok'}
`,
});

/** Leaves a pending promotion if a run of this key is under way. To be called before the key is
 * added: then either the end of the run finds the mark, or BullMQ finds a delayed job and promotes
 * it. */
export async function markPendingPromotion(
  redis: Redis,
  { prefix, queue }: QueuePlace,
  keyId: string,
): Promise<void> {
  const keys = { root: queueRoot(prefix, queue), marks: pendingPromotionKey(prefix, queue, '') };
  await mark.run(redis, keys, { keyId });
}

/** Promotes the key's job if it is delayed, and does nothing otherwise. */
export async function promoteKey(redis: Redis, place: QueuePlace, keyId: string): Promise<void> {
  const root = queueRoot(place.prefix, place.queue);
  await promoteScript.run(redis, { root }, { keyId, nowMs: Date.now() });
}

/** Promotes a job that has just been delayed if it has a pending promotion. */
export async function takePendingPromotion(
  redis: Redis,
  { prefix, queue }: QueuePlace,
  job: { readonly jobId: string; readonly keyId: string },
): Promise<void> {
  const keys = {
    root: queueRoot(prefix, queue),
    mark: pendingPromotionKey(prefix, queue, job.jobId),
  };
  await promoteMarked.run(redis, keys, { ...job, nowMs: Date.now() });
}

import type { Redis } from 'ioredis';
import { defineNamedScript } from '../redis/named-script.ts';
import { QUEUE_LUA, queueRoot } from './bullmq-layout.ts';
import type { QueuePlace } from './key-names.ts';

/** Delays those of the keys' jobs again that are in no list. Reads the waiting jobs without a
 * priority only where a job is nowhere else, and once for all keys. Builds on bullmq-layout.ts. */
const requeueLost = defineNamedScript({
  keys: ['root'],
  args: { keyIds: 'text', nowMs: 'number' },
  answers: { requeued: { jobs: 'list' } },
  lua: `${QUEUE_LUA}
local jobs, waiting = {}, nil
for _, keyId in ipairs(cjson.decode(keyIds)) do
  local jobId = jobOf(root, keyId)
  if jobId and not isDelayedOrActive(root, jobId) then
    waiting = waiting or waitingJobs(root)
    if not waiting[jobId] then
      delayAgain(root, jobId, nowMs)
      jobs[#jobs + 1] = jobId
    end
  end
end
return {'requeued', 'jobs', jobs}
`,
});

/** Finds jobs that BullMQ would never run, and for which it would drop all hints: each of a key
 * that is in none of the queue's lists any more, as after data was lost or deleted by hand. They
 * are delayed again by as long as they were.
 * @param keyIds keys that have a job, some hundred at most
 * @returns      the ids of those jobs */
export async function requeueLostJobs(
  redis: Redis,
  { prefix, queue }: QueuePlace,
  keyIds: readonly string[],
): Promise<readonly string[]> {
  const keys = { root: queueRoot(prefix, queue) };
  const args = { keyIds: JSON.stringify(keyIds), nowMs: Date.now() };
  return (await requeueLost.run(redis, keys, args)).jobs;
}

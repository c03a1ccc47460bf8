import type { Redis } from 'ioredis';
import { defineNamedScript } from '../redis/named-script.ts';
import { DELAYED_SCORE_PER_MS, type QueuePlace, queueRoot } from './queue-keys.ts';

/** Delays those of the keys' jobs again that are in no list, and unblocks a worker. On BullMQ's own
 * keys, because one call looks at 200 keys: by `Queue.getJobState` each request for a key that has
 * a job would cost seven commands, and no call of BullMQ puts such a job back with its failures.
 * Reads the waiting jobs without a priority only where a job is nowhere else, and once for all
 * keys. */
const requeueLost = defineNamedScript({
  keys: ['root'],
  args: { keyIds: 'text', nowMs: 'number' },
  answers: { requeued: { jobs: 'list' } },
  lua: `
local waiting
-- Whether a job is delayed, waits, or is run by a worker, which holds its lock.
local function isListed(jobId)
  if redis.call('ZSCORE', root .. 'delayed', jobId)
    or redis.call('ZSCORE', root .. 'prioritized', jobId)
    or redis.call('LPOS', root .. 'active', jobId)
    or redis.call('EXISTS', root .. jobId .. ':lock') == 1
  then
    return true
  end
  if not waiting then
    waiting = {}
    for _, id in ipairs(redis.call('LRANGE', root .. 'wait', 0, -1)) do waiting[id] = true end
  end
  return waiting[jobId]
end

local jobs = {}
for _, keyId in ipairs(cjson.decode(keyIds)) do
  local jobId = redis.call('GET', root .. 'de:' .. keyId)
  if jobId and not isListed(jobId) then
    local dueMs = nowMs + tonumber(redis.call('HGET', root .. jobId, 'delay') or '0')
    local score = string.format('%.0f', dueMs * ${DELAYED_SCORE_PER_MS})
    redis.call('ZADD', root .. 'delayed', score, jobId)
    redis.call('ZADD', root .. 'marker', nowMs, '1')
    jobs[#jobs + 1] = jobId
  end
end
return {'requeued', 'jobs', jobs}
`,
});

/** Finds jobs that BullMQ would never run, and for which it would drop all requests: each of a key
 * that is in none of the queue's lists any more, as after data was lost or deleted by hand. They
 * are delayed again by as long as they were.
 * @param keyIds keys that have a job, some hundred at most
 * @returns      the ids of those jobs */
export async function requeueLostJobs(
  redis: Redis,
  { prefix, queue }: QueuePlace,
  keyIds: readonly string[],
): Promise<readonly string[]> {
  const args = { keyIds: JSON.stringify(keyIds), nowMs: Date.now() };
  return (await requeueLost.run(redis, { root: queueRoot(prefix, queue) }, args)).jobs;
}

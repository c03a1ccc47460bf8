import { keyPrefix } from '../redis/key-names.ts';

/* The private data of BullMQ in Redis that sutler uses: keys, scores and hash fields. The lowest
 * layer of this folder; no other file of src/ names them. test/queue/bullmq-layout.test.ts checks
 * each fact against the pinned BullMQ, so an upgrade that changes one fails there.
 *
 * The keys of a queue begin with its root, `{csi}:claims.<driver>:`, followed by
 *
 *   wait         list: waiting jobs without a priority
 *   prioritized  sorted set: waiting jobs with one; score = priority * 2^32 + a counter
 *   delayed      sorted set: delayed jobs; score = due time in Unix ms * 4096 + a counter
 *   active       list: jobs that a worker runs
 *   marker       sorted set that idle workers block on; '0' = a job waits, '1' = when a delayed job
 *                is due
 *   meta         hash: settings of the queue (paused, opts.maxLenEvents; concurrency: how many jobs
 *                may be active; max and duration: how many may become active in how many ms)
 *   limiter      exists while the queue's rate limit stops it
 *   stalled-check  exists for some time after a worker looked for jobs of dead workers
 *   <job id>     hash: the job, with its fields priority and delay
 *   <job id>:lock  exists while a worker runs the job and renews it
 *   de:<key id>  string: id of the job that a deduplicated key has
 *   dn:<key id>  hash: the last hint during that job's run, which becomes the key's next job */

/** Score of a delayed job for each millisecond of its due time. */
export const DELAYED_SCORE_PER_MS = 4096;

/** Score of a prioritized job for each step of its priority. */
export const SCORE_PER_PRIORITY = 2 ** 32;

/** BullMQ's highest priority number, which runs last; 1 runs first, 0 is no priority. */
export const LAST_PRIORITY = 2_097_151;

/** Field of `meta`: how many events BullMQ keeps of the queue. */
export const MAX_EVENTS_FIELD = 'opts.maxLenEvents';

/** Fields of `meta`: the limits that all workers of the queue keep to together. */
export const LIMIT_FIELDS = ['concurrency', 'max', 'duration'] as const;

/** What all keys of a queue begin with; test and bench code appends the parts above.
 * @throws UsageError for a prefix that is not allowed */
export function queueRoot(prefix: string, queue: string): string {
  return `${keyPrefix(prefix)}:${queue}:`;
}

/** The hash of the queue's settings. */
export function metaKey(prefix: string, queue: string): string {
  return `${queueRoot(prefix, queue)}meta`;
}

/** Lua functions about one queue, with which a script begins; `root` is what the queue's keys begin
 * with. */
export const QUEUE_LUA = `
-- The id of the key's job, or false.
local function jobOf(root, keyId)
  return redis.call('GET', root .. 'de:' .. keyId)
end

-- Whether a worker runs the job.
local function isActive(root, jobId)
  return redis.call('LPOS', root .. 'active', jobId) ~= false
end

-- Whether a job is delayed, waits with a priority, or is run by a worker, which holds its lock.
local function isDelayedOrActive(root, jobId)
  return redis.call('ZSCORE', root .. 'delayed', jobId)
    or redis.call('ZSCORE', root .. 'prioritized', jobId)
    or isActive(root, jobId)
    or redis.call('EXISTS', root .. jobId .. ':lock') == 1
end

-- The set of the jobs that wait without a priority.
local function waitingJobs(root)
  local waiting = {}
  for _, jobId in ipairs(redis.call('LRANGE', root .. 'wait', 0, -1)) do waiting[jobId] = true end
  return waiting
end

-- Delays a job that is in no list, by as long as it was delayed last, and unblocks a worker.
local function delayAgain(root, jobId, nowMs)
  local dueMs = tonumber(nowMs) + tonumber(redis.call('HGET', root .. jobId, 'delay') or '0')
  local score = string.format('%.0f', dueMs * ${DELAYED_SCORE_PER_MS})
  redis.call('ZADD', root .. 'delayed', score, jobId)
  redis.call('ZADD', root .. 'marker', nowMs, '1')
end

-- Drops the hint that came during the run of the key's job.
local function dropNextHint(root, keyId)
  redis.call('DEL', root .. 'dn:' .. keyId)
end

-- Makes a delayed job due now and unblocks a worker for it. As in BullMQ's changeDelay, it stays in
-- 'delayed' until a worker takes it. Returns whether the job was delayed.
local function promote(root, jobId, nowMs)
  if not redis.call('ZSCORE', root .. 'delayed', jobId) then return false end
  redis.call('HSET', root .. jobId, 'delay', 0)
  redis.call('ZADD', root .. 'delayed', tonumber(nowMs) * ${DELAYED_SCORE_PER_MS}, jobId)
  redis.call('ZADD', root .. 'marker', nowMs, '1')
  return true
end

-- Unblocks a worker of each queue where a job waits or is due: one that took the marker may have
-- frozen. The roots of the queues are keys[from] and all after it. Answers whether a queue has
-- jobs, delayed ones included.
local function unblockForWaiting(keys, from, nowMs)
  local lists = {}
  for i = from, #keys do
    for _, list in ipairs({'wait', 'prioritized', 'delayed'}) do
      lists[#lists + 1] = keys[i] .. list
    end
  end
  if #lists == 0 or redis.call('EXISTS', unpack(lists)) == 0 then return false end
  local dueScore = tonumber(nowMs) * ${DELAYED_SCORE_PER_MS}
  for i = from, #keys do
    local root = keys[i]
    if redis.call('EXISTS', root .. 'wait', root .. 'prioritized') > 0
      or redis.call('ZCOUNT', root .. 'delayed', '-inf', dueScore) > 0
    then
      redis.call('ZADD', root .. 'marker', 0, '0')
    end
  end
  return true
end

-- Has what expires by Redis' clock expire that much earlier: the locks of jobs, the pause of a rate
-- limit, and the pause between two looks for jobs of dead workers.
local function shortenExpiries(root, byMs)
  local names = {'limiter', 'stalled-check'}
  for _, jobId in ipairs(redis.call('LRANGE', root .. 'active', 0, -1)) do
    names[#names + 1] = jobId .. ':lock'
  end
  for _, name in ipairs(names) do
    local leftMs = redis.call('PTTL', root .. name)
    if leftMs > 0 then redis.call('PEXPIRE', root .. name, math.max(1, leftMs - byMs)) end
  end
end

-- Makes every delayed job due that much later.
local function extendDelays(root, byMs)
  local delayed = redis.call('ZRANGE', root .. 'delayed', 0, -1, 'WITHSCORES')
  for i = 1, #delayed, 2 do
    local score = tonumber(delayed[i + 1]) + byMs * ${DELAYED_SCORE_PER_MS}
    redis.call('ZADD', root .. 'delayed', string.format('%.0f', score), delayed[i])
  end
end

-- How many jobs a worker could take now: those that wait and the delayed ones that are due; 0 while
-- the queue is paused or at one of its limits.
local function countTakeable(root, nowMs)
  local meta = redis.call('HMGET', root .. 'meta', 'paused', 'concurrency')
  local isPaused, concurrency = meta[1], tonumber(meta[2] or math.huge)
  if isPaused or redis.call('EXISTS', root .. 'limiter') == 1 then return 0 end
  if redis.call('LLEN', root .. 'active') >= concurrency then return 0 end
  local dueScore = tonumber(nowMs) * ${DELAYED_SCORE_PER_MS}
  return redis.call('LLEN', root .. 'wait')
    + redis.call('ZCARD', root .. 'prioritized')
    + redis.call('ZCOUNT', root .. 'delayed', '-inf', dueScore)
end

-- The priority of the prioritized job that runs next, or -1.
local function lowestPriority(root)
  local first = redis.call('ZRANGE', root .. 'prioritized', 0, 0, 'WITHSCORES')
  return first[2] and math.floor(tonumber(first[2]) / ${SCORE_PER_PRIORITY}) or -1
end

-- Lowers the priority of every job that has one, to 1 at least: waiting, delayed and active jobs.
-- Their order stays.
local function lowerPriorities(root, by)
  local function lowerField(jobId)
    local priority = tonumber(redis.call('HGET', root .. jobId, 'priority') or '0')
    if priority > 0 then
      redis.call('HSET', root .. jobId, 'priority', math.max(1, priority - by))
    end
  end
  local waiting = redis.call('ZRANGE', root .. 'prioritized', 0, -1, 'WITHSCORES')
  for i = 1, #waiting, 2 do
    local jobId, score = waiting[i], tonumber(waiting[i + 1])
    local steps = math.min(by, math.floor(score / ${SCORE_PER_PRIORITY}) - 1)
    redis.call('ZADD', root .. 'prioritized', score - steps * ${SCORE_PER_PRIORITY}, jobId)
    lowerField(jobId)
  end
  for _, jobId in ipairs(redis.call('ZRANGE', root .. 'delayed', 0, -1)) do lowerField(jobId) end
  for _, jobId in ipairs(redis.call('LRANGE', root .. 'active', 0, -1)) do lowerField(jobId) end
end
`;

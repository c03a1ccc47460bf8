import type { Queue } from 'bullmq';
import type { Redis } from 'ioredis';

import type { Fairness } from './fairness.ts';
import { fairnessKey } from './key-names.ts';
import { defineScript } from '../redis/script.ts';

/** BullMQ's score of a prioritized job is priority * 2^32 + a counter. */
const PRIORITY_UNIT = 0x1_0000_0000;

/** KEYS: prioritized set, saved virtual time. ARGV: virtual time. Returns the later of the two
 * times, and the lowest priority that waits or -1. */
const observe = defineScript(`
local saved = tonumber(redis.call('GET', KEYS[2]) or '0')
local now = tonumber(ARGV[1])
if now > saved then
  redis.call('SET', KEYS[2], ARGV[1])
  saved = now
end
local lowest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if lowest[2] then
  return { saved, math.floor(tonumber(lowest[2]) / ${PRIORITY_UNIT}) }
end
return { saved, -1 }
`);

/** KEYS: prioritized set, delayed set, active list, saved virtual time. ARGV: what job keys begin
 * with, ticks. Lowers every priority by that many ticks. */
const rebase = defineScript(`
local ticks = tonumber(ARGV[2])
local function lower(id)
  local priority = tonumber(redis.call('HGET', ARGV[1] .. id, 'priority') or '0')
  if priority > 0 then
    redis.call('HSET', ARGV[1] .. id, 'priority', math.max(1, priority - ticks))
  end
end
local waiting = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #waiting, 2 do
  local score = tonumber(waiting[i + 1])
  local priority = math.floor(score / ${PRIORITY_UNIT})
  redis.call('ZADD', KEYS[1], math.max(1, priority - ticks) * ${PRIORITY_UNIT} + score % ${PRIORITY_UNIT}, waiting[i])
  lower(waiting[i])
end
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do lower(id) end
for _, id in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do lower(id) end
redis.call('SET', KEYS[4], math.max(0, tonumber(redis.call('GET', KEYS[4]) or '0') - ticks))
return #waiting / 2
`);

/** Brings virtual time up to what the queue holds, and keeps it in Redis for the next leader. Moves
 * the zero when the numbers run out: once in a million jobs. */
export async function syncFairness(
  redis: Redis,
  prefix: string,
  o: { readonly queue: Queue; readonly fairness: Fairness },
): Promise<void> {
  const { queue, fairness } = o;
  const saved = fairnessKey(prefix, queue.name);
  const reply = await observe.run(redis, [queue.toKey('prioritized'), saved], [fairness.nowTick]);
  if (!Array.isArray(reply)) throw new TypeError('the fairness script returned no list');
  const [savedTick, lowest] = reply.map(Number);
  fairness.observe((savedTick ?? 0) + 1);
  fairness.observe(lowest === undefined || lowest < 0 ? undefined : lowest);
  const ticks = fairness.rebaseTicks;
  if (ticks === 0) return;
  await rebase.run(
    redis,
    [queue.toKey('prioritized'), queue.toKey('delayed'), queue.toKey('active'), saved],
    [queue.toKey(''), ticks],
  );
  fairness.rebased(ticks);
}

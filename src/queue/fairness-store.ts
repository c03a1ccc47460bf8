import type { Redis } from 'ioredis';
import { defineScript } from '../redis/script.ts';
import { LOWER_PRIORITIES, LOWEST_PRIORITY, queueRoot } from './bullmq-layout.ts';
import type { Fairness } from './fairness.ts';
import { fairnessKey } from './key-names.ts';

/** Stores our virtual time, unless a later one is stored.
 * KEYS: 1 root of the queue's keys, 2 stored virtual time. ARGV: 1 our virtual time.
 * Answer: the later of the two times; the lowest priority that waits, or -1. */
const observe = defineScript(`${LOWEST_PRIORITY}
local root, storedTime, ourTick = KEYS[1], KEYS[2], tonumber(ARGV[1])
local storedTick = tonumber(redis.call('GET', storedTime) or '0')
if ourTick > storedTick then redis.call('SET', storedTime, ourTick) end
return { math.max(ourTick, storedTick), lowestPriority(root) }
`);

/** Moves the zero of virtual time: lowers all priorities, and the stored time, by some ticks.
 * KEYS: 1 root of the queue's keys, 2 stored virtual time. ARGV: 1 ticks. */
const rebase = defineScript(`${LOWER_PRIORITIES}
local root, storedTime, ticks = KEYS[1], KEYS[2], tonumber(ARGV[1])
lowerPriorities(root, ticks)
redis.call('SET', storedTime, math.max(0, tonumber(redis.call('GET', storedTime) or '0') - ticks))
`);

/** Keeps the virtual time of fairness.ts in Redis, for the next leader, and brings it up to what
 * the queue holds. Moves its zero before the priorities run out: once in a million jobs. */
export async function syncFairness(
  redis: Redis,
  prefix: string,
  queue: string,
  fairness: Fairness,
): Promise<void> {
  const keys = [queueRoot(prefix, queue), fairnessKey(prefix, queue)];
  const answer = await observe.run(redis, keys, [fairness.nowTick]);
  const [storedTick, lowestPriority] = answer as readonly [number, number];
  fairness.observe(storedTick + 1);
  fairness.observe(lowestPriority < 0 ? undefined : lowestPriority);
  const ticks = fairness.rebaseTicks;
  if (ticks === 0) return;
  await rebase.run(redis, keys, [ticks]);
  fairness.rebase(ticks);
}

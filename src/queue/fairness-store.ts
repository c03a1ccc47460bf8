import type { Redis } from 'ioredis';
import { defineNamedScript } from '../redis/named-script.ts';
import { QUEUE_LUA, queueRoot } from './bullmq-layout.ts';
import type { Fairness } from './fairness.ts';
import { fairnessKey } from './key-names.ts';

/** Stores our virtual time, unless a later one is stored, and answers with the later one and the
 * lowest priority that waits, or -1. */
const observe = defineNamedScript({
  keys: ['root', 'storedTime'],
  args: { ourTick: 'number' },
  answers: { observed: { tick: 'number', lowest: 'number' } },
  lua: `${QUEUE_LUA}
local storedTick = tonumber(redis.call('GET', storedTime) or '0')
if ourTick > storedTick then redis.call('SET', storedTime, ourTick) end
return {'observed', 'tick', math.max(ourTick, storedTick), 'lowest', lowestPriority(root)}
`,
});

/** Moves the zero of virtual time: lowers all priorities, and the stored time, by some ticks. */
const rebase = defineNamedScript({
  keys: ['root', 'storedTime'],
  args: { ticks: 'number' },
  answers: { ok: {} },
  lua: `${QUEUE_LUA}
lowerPriorities(root, ticks)
redis.call('SET', storedTime, math.max(0, tonumber(redis.call('GET', storedTime) or '0') - ticks))
return {'ok'}
`,
});

/** Keeps the virtual time of fairness.ts in Redis, for the next leader, and advances it to what the
 * queue holds. Moves its zero before the priorities run out: once in a million jobs. */
export async function syncFairness(
  redis: Redis,
  prefix: string,
  queue: string,
  fairness: Fairness,
): Promise<void> {
  const keys = { root: queueRoot(prefix, queue), storedTime: fairnessKey(prefix, queue) };
  const { tick, lowest } = await observe.run(redis, keys, { ourTick: fairness.nowTick });
  fairness.observe(tick + 1);
  fairness.observe(lowest < 0 ? undefined : lowest);
  const ticks = fairness.rebaseTicks;
  if (ticks === 0) return;
  await rebase.run(redis, keys, { ticks });
  fairness.rebase(ticks);
}

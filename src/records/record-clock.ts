import { performance } from 'node:perf_hooks';
import type { Redis } from 'ioredis';
import { defineNamedScript } from '../redis/named-script.ts';

/* The record clock of a driver: the time in which the waits of records are stated. It goes on as
 * Redis' clock does, but not where that was set: it never goes back, and skips a few seconds at
 * most. A wait that is under way when Redis' clock is set lasts as long as it was to last, and so
 * does one under way in a failover to a Redis with another clock (decision 13).
 *
 * The leading ingest moves it on each second, and each worker every 2 s. Whoever does measures by
 * its own monotonic clock how long ago it did so before: no more time can have passed. In between
 * others read it, and add what has passed by Redis' clock since it was moved on.
 *
 * Fields of the hash of data-epoch.ts:
 * clock    the record clock, ms; it began with Redis' Unix time
 * clockAt  what Redis' clock was then, Unix ms */

/** How much is added at most before the clock is moved on again: workers do so every 2 s. Somebody
 * who moves it on for the first time adds no more either. */
const LONGEST_READ_MS = 2_000;

/** Lua: the record clock as the local `now`, and Redis' clock as `redisNow`, which is for people.
 * Both are Redis' clock before somebody moves the record clock on for the first time. */
export const RECORD_NOW = `
local time = redis.call('TIME')
local redisNow = time[1] * 1000 + math.floor(time[2] / 1000)
local clock, clockAt = unpack(redis.call('HMGET', dataEpochKey, 'clock', 'clockAt'))
local function passed(longestMs)
  return math.max(0, math.min(redisNow - clockAt, longestMs))
end
local now = clock and clock + passed(${LONGEST_READ_MS}) or redisNow
`;

/** The argument of MOVE_CLOCK, which a ClockMover gives. */
export const CLOCK_ARGS = { elapsedMs: 'number' } as const;

/** Lua: moves the record clock on. Sets what RECORD_NOW sets. */
export const MOVE_CLOCK = `${RECORD_NOW}
if clock then now = clock + passed(elapsedMs) end
redis.call('HSET', dataEpochKey, 'clock', now, 'clockAt', redisNow)
`;

/** Measures for a process how long ago it moved the record clock on. */
export class ClockMover {
  #sentMs: number | undefined;

  /** Sends a script that moves the clock on, with the argument of CLOCK_ARGS. */
  async move<T>(send: (elapsedMs: number) => Promise<T>): Promise<T> {
    const nowMs = performance.now();
    const sinceMs = this.#sentMs === undefined ? LONGEST_READ_MS : nowMs - this.#sentMs;
    const answer = await send(Math.round(sinceMs));
    this.#sentMs = Math.max(nowMs, this.#sentMs ?? 0);
    return answer;
  }
}

const readScript = defineNamedScript({
  keys: ['dataEpochKey'],
  args: {},
  answers: { clock: { nowMs: 'number', redisNowMs: 'number' } },
  lua: `${RECORD_NOW}
return {'clock', 'nowMs', now, 'redisNowMs', redisNow}
`,
});

/** Reads the record clock, and Redis' clock beside it. */
export function readRecordClock(redis: Redis, dataEpochKey: string) {
  return readScript.run(redis, { dataEpochKey }, {});
}

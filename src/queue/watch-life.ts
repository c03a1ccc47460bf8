import { performance } from 'node:perf_hooks';
import type { Redis } from 'ioredis';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import { watchKey } from './queue-keys.ts';

/* When the leader's watch of claims last brought something, by Redis' clock: workers use the copy
 * of a claim in a job only while that is a moment ago (invariant 1). */

/** A watch, by a name that no other one has, and when it last brought something. */
export interface WatchLife {
  readonly watch: string;
  readonly ageMs: number;
}

/** Which driver of which installation. */
export interface DriverPlace {
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly driver: string;
}

const write = defineNamedScript({
  keys: ['life'],
  args: { watch: 'text', ageMs: 'number' },
  answers: { ok: {} },
  // Reads first, so that a replica without its master says so.
  lua: `${REDIS_NOW}
redis.call('EXISTS', life)
redis.call('HSET', life, 'watch', watch, 'at', string.format('%.0f', now - ageMs))
return {'ok'}
`,
});

/** Tells workers that a watch lives. All changes that it has shown must be in Redis. */
export async function writeWatchLife(
  redis: Redis,
  { prefix, driver }: DriverPlace,
  { watch, ageMs }: WatchLife,
): Promise<void> {
  await write.run(redis, { life: watchKey(prefix, driver) }, { watch, ageMs: Math.ceil(ageMs) });
}

const read = defineNamedScript({
  keys: ['life'],
  args: {},
  answers: { life: { watch: 'text', ageMs: 'number' } },
  lua: `${REDIS_NOW}
local watch, at = unpack(redis.call('HMGET', life, 'watch', 'at'))
return {'life', 'watch', watch or '', 'ageMs', string.format('%.0f', now - (tonumber(at) or 0))}
`,
});

/** How long ago a watch may have brought something for the last time. */
export const MAX_SILENCE_MS = 5_000;
/** How often Redis is asked at most. */
const ASK_PAUSE_MS = 100;

/** Whether the leader's watch lives, as a worker knows it. */
export class WatchLifeReader {
  readonly #redis: Redis;
  readonly #place: DriverPlace;
  #known: WatchLife | undefined;
  /** By performance.now(). */
  #askedMs = -Infinity;
  #asking: Promise<void> | undefined;

  constructor(redis: Redis, place: DriverPlace) {
    this.#redis = redis;
    this.#place = place;
  }

  /** Whether this watch is the leader's, and has brought something a moment ago. Asks Redis where
   * that is not known already. Never rejects. */
  async isAlive(watch: string): Promise<boolean> {
    if (this.#isKnownAlive(watch)) return true;
    if (performance.now() - this.#askedMs >= ASK_PAUSE_MS)
      this.#asking ??= this.#ask().finally(() => (this.#asking = undefined));
    await this.#asking;
    return this.#isKnownAlive(watch);
  }

  #isKnownAlive(watch: string): boolean {
    if (this.#known?.watch !== watch) return false;
    const ageMs = this.#known.ageMs + performance.now() - this.#askedMs;
    // Negative where Redis' clock was set back.
    return this.#known.ageMs >= 0 && ageMs <= MAX_SILENCE_MS;
  }

  async #ask(): Promise<void> {
    const { prefix, driver } = this.#place;
    // From before the question, so that the age is not less than it is.
    this.#askedMs = performance.now();
    this.#known = await read
      .run(this.#redis, { life: watchKey(prefix, driver) }, {})
      .catch(() => undefined);
  }
}

import { performance } from 'node:perf_hooks';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import { watchKey } from './queue-keys.ts';

/* When the leader's watch of claims last brought something, by Redis' clock: workers use the copy
 * of a claim in a job only while that is a moment ago (invariant 1). */

const write = defineNamedScript({
  keys: ['life'],
  args: { watch: 'text', at: 'number' },
  answers: { ok: { nowMs: 'number' } },
  // Reads first, so that a replica without its master says so.
  lua: `${REDIS_NOW}
redis.call('EXISTS', life)
redis.call('HSET', life, 'watch', watch, 'at', string.format('%.0f', at))
return {'ok', 'nowMs', string.format('%.0f', now)}
`,
});

/** Tells workers that a watch lives. It says so in Redis' time, as the last answer had it, since a
 * command may reach Redis long after it was sent. */
export class WatchLifeWriter {
  readonly #place: RedisPlace;
  /** Redis' time less performance.now(), or less than that. */
  #offsetMs: number | undefined;

  constructor(place: RedisPlace) {
    this.#place = place;
  }

  /** All changes that the watch had shown by then must be in Redis.
   * @param watch    a name that no other watch has
   * @param heardMs  when it last brought something, by performance.now() */
  async write(watch: string, heardMs: number): Promise<void> {
    if (this.#offsetMs === undefined) await this.#write(watch, 0);
    await this.#write(watch, Math.max(0, Math.floor(heardMs + (this.#offsetMs ?? -Infinity))));
  }

  async #write(watch: string, at: number): Promise<void> {
    const { redis, prefix, driver } = this.#place;
    const life = watchKey(prefix, driver);
    const { nowMs } = await write.run(redis, { life }, { watch, at });
    this.#offsetMs = nowMs - performance.now();
  }
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

/** What Redis said about the watch; both times by performance.now(). `heardMs`: later than
 * `askedMs` where Redis' clock was set back. */
interface KnownLife {
  readonly watch: string;
  readonly askedMs: number;
  readonly heardMs: number;
}

/** Whether the leader's watch lives, as a worker knows it. */
export class WatchLifeReader {
  readonly #place: RedisPlace;
  #known: KnownLife | undefined;
  /** By performance.now(). */
  #askedMs = -Infinity;
  #asking: Promise<void> | undefined;

  constructor(place: RedisPlace) {
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
    const { askedMs, heardMs } = this.#known;
    return heardMs <= askedMs && performance.now() - heardMs <= MAX_SILENCE_MS;
  }

  async #ask(): Promise<void> {
    const { redis, prefix, driver } = this.#place;
    // From before the question, so that the age is not less than it is.
    const askedMs = (this.#askedMs = performance.now());
    this.#known = await read.run(redis, { life: watchKey(prefix, driver) }, {}).then(
      ({ watch, ageMs }) => ({ watch, askedMs, heardMs: askedMs - ageMs }),
      () => undefined,
    );
  }
}

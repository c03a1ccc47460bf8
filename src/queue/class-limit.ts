import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { type KeyUid, workId } from './contract.ts';
import { classPlacesKey, queueName } from './queue-keys.ts';

/** The limit of a class: how many volumes of it all workers together create at once, and as many
 * are deleted at once. */
export interface Limit {
  readonly className: string;
  /** 0 or more. */
  readonly maxInFlight: number;
}

/** How long a key waits that gets no place, before it asks again: so long, and up to twice. */
const ASK_AGAIN_MS = 3_000;

/** Takes a place, or renews it.
 *
 * Keys  places  the keys that have a place, with the time at which it expires
 * Args  keepMs  for how long; 0: only looks whether there is a place */
const takeScript = defineNamedScript({
  keys: ['places'],
  args: { uid: 'text', maxInFlight: 'number', keepMs: 'number' },
  answers: { taken: {}, full: {} },
  lua: `${REDIS_NOW}
redis.call('ZREMRANGEBYSCORE', places, '-inf', now)
local isKept = redis.call('ZSCORE', places, uid)
if not isKept and redis.call('ZCARD', places) >= maxInFlight then return {'full'} end
if keepMs > 0 then
  redis.call('ZADD', places, now + keepMs, uid)
  redis.call('PEXPIRE', places, keepMs)
end
return {'taken'}
`,
});

/** The limits of one driver's classes. Methods reject when Redis can't be asked. */
export class ClassLimits {
  readonly #place: RedisPlace & { readonly keepMs: number };
  readonly #random: () => number;

  /** @param place.keepMs  how long a key keeps its place without a run; longer than any run
   * @param random  uniform in [0, 1) */
  constructor(place: RedisPlace & { readonly keepMs: number }, random = Math.random) {
    this.#place = place;
    this.#random = random;
  }

  /** Takes a place for a key; one that has a place keeps it.
   * @returns undefined if the run may go on, else in how many ms to ask again */
  take(key: KeyUid, limit: Limit): Promise<number | undefined> {
    return this.#ask(key, limit, this.#place.keepMs);
  }

  /** Looks whether a key could take a place.
   * @returns as `take` */
  look(key: KeyUid, limit: Limit): Promise<number | undefined> {
    return this.#ask(key, limit, 0);
  }

  async #ask(key: KeyUid, limit: Limit, keepMs: number): Promise<number | undefined> {
    const { redis } = this.#place;
    const args = { uid: workId(key), maxInFlight: limit.maxInFlight, keepMs };
    const { kind } = await takeScript.run(redis, { places: this.#key(key, limit) }, args);
    return kind === 'taken' ? undefined : Math.ceil(ASK_AGAIN_MS * (1 + this.#random()));
  }

  /** Gives the place of a key back. */
  async end(key: KeyUid, limit: Limit): Promise<void> {
    await this.#place.redis.zrem(this.#key(key, limit), workId(key));
  }

  #key({ kind }: KeyUid, { className }: Limit): string {
    const { prefix, driver } = this.#place;
    return classPlacesKey(prefix, queueName(kind, driver), className);
  }
}

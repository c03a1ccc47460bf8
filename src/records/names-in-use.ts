import type { Redis } from 'ioredis';
import { defineNamedScript } from '../redis/named-script.ts';
import { volumeNameKey } from './key-names.ts';

/** How long a name stays reserved without a run: longer than any pause between two runs. A volume
 * that exists protects its name by its PV. */
const RESERVED_MS = 86_400_000;

const reserveScript = defineNamedScript({
  keys: ['nameKey'],
  args: { uid: 'text', reservedMs: 'number' },
  answers: { reserved: {}, taken: { uid: 'text' } },
  lua: `
local current = redis.call('GET', nameKey)
if current and current ~= uid then return {'taken', 'uid', current} end
redis.call('SET', nameKey, uid, 'PX', reservedMs)
return {'reserved'}
`,
});

const releaseScript = defineNamedScript({
  keys: ['nameKey'],
  args: { uid: 'text' },
  answers: { ok: {} },
  lua: `
if redis.call('GET', nameKey) == uid then redis.call('DEL', nameKey) end
return {'ok'}
`,
});

/** The shortened volume names of one driver, and the claim that each is reserved for: two UIDs may
 * begin alike, and the driver would give both claims one volume. Methods reject while Redis can't
 * be reached. */
export class VolumeNames {
  readonly #redis: Redis;
  readonly #prefix: string;
  readonly #driver: string;

  constructor(redis: Redis, prefix: string, driver: string) {
    this.#redis = redis;
    this.#prefix = prefix;
    this.#driver = driver;
  }

  /** Reserves a name, or extends the reservation.
   * @returns the UID of the other claim that has the name; undefined when it is reserved */
  async reserve(name: string, uid: string): Promise<string | undefined> {
    const args = { uid, reservedMs: RESERVED_MS };
    const answer = await reserveScript.run(this.#redis, this.#keys(name), args);
    return answer.kind === 'taken' ? answer.uid : undefined;
  }

  /** Ends the reservation of this claim; another claim's stays. */
  async release(name: string, uid: string): Promise<void> {
    await releaseScript.run(this.#redis, this.#keys(name), { uid });
  }

  #keys(name: string): { readonly nameKey: string } {
    return { nameKey: volumeNameKey(this.#prefix, this.#driver, name) };
  }
}

import type { Redis } from 'ioredis';
import { defineNamedScript } from '../redis/named-script.ts';
import { volumeNameKey } from './key-names.ts';

/** How long a name stays reserved without a run: longer than any pause between two runs. Once the
 * volume exists, its PV keeps the name from being used again. */
const RESERVED_MS = 86_400_000;

const reserveScript = defineNamedScript({
  keys: ['nameKey'],
  args: { uid: 'text' },
  answers: { reserved: {}, taken: { uid: 'text' } },
  lua: `
local current = redis.call('GET', nameKey)
if current and current ~= uid then return {'taken', 'uid', current} end
redis.call('SET', nameKey, uid, 'PX', ${RESERVED_MS})
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

/** Reserves the shortened volume names of one driver, each for one claim. The UIDs of two claims
 * may begin alike, and with one name the driver would give both the same volume. Methods reject
 * while Redis can't be reached. */
export class VolumeNames {
  readonly #redis: Redis;
  readonly #keys: (name: string) => { readonly nameKey: string };

  constructor(redis: Redis, prefix: string, driver: string) {
    this.#redis = redis;
    this.#keys = (name) => ({ nameKey: volumeNameKey(prefix, driver, name) });
  }

  /** Reserves a name, or extends the reservation.
   * @returns the UID of the other claim that has the name; undefined when it is reserved */
  async reserve(name: string, uid: string): Promise<string | undefined> {
    const answer = await reserveScript.run(this.#redis, this.#keys(name), { uid });
    return answer.kind === 'taken' ? answer.uid : undefined;
  }

  /** Ends the reservation of this claim; another claim's stays. */
  async release(name: string, uid: string): Promise<void> {
    await releaseScript.run(this.#redis, this.#keys(name), { uid });
  }
}

import type { Redis } from 'ioredis';
import { keyPrefix } from '../redis/key-names.ts';
import { defineScript } from '../redis/script.ts';

/* Which claim a shortened volume name belongs to. Two UIDs may begin alike; the driver would give
 * both one volume. */

/** Longer than any pause between two runs; a volume that exists guards its name by its PV. */
const HOLD_MS = 86_400_000;

/** KEYS: the name's key. ARGV: uid, how long to hold it in ms. Returns '' where it is this uid's
 * now, else the holder. */
const hold = defineScript(`
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ''
`);

/** KEYS: the name's key. ARGV: uid. */
const release = defineScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
`);

/** The volume names of one driver that are spoken for. Methods reject when Redis can't be asked. */
export class VolumeNames {
  readonly #redis: Redis;
  readonly #root: string;

  constructor(redis: Redis, prefix: string, driver: string) {
    this.#redis = redis;
    this.#root = `${keyPrefix(prefix)}:name:${driver}:`;
  }

  /** Takes a name, or keeps it.
   * @returns the UID that has it where that is another one */
  async hold(name: string, uid: string): Promise<string | undefined> {
    const holder = String(await hold.run(this.#redis, [this.#root + name], [uid, HOLD_MS]));
    return holder === '' ? undefined : holder;
  }

  /** Gives a name back. */
  async release(name: string, uid: string): Promise<void> {
    await release.run(this.#redis, [this.#root + name], [uid]);
  }
}

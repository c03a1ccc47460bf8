import type { Redis } from 'ioredis';
import { defineNamedScript } from '../redis/named-script.ts';
import { type CapacityHint, decodeHint, encodeHint } from '../volumes/capacity/hints.ts';
import { hintsKey } from './keys.ts';

/* The hints that runs of claims and volumes leave for the leading ingest: jobs add no keys to
 * queues. A hash whose fields are the hints, so that equal ones are one. */

const takeScript = defineNamedScript({
  keys: ['hints'],
  args: {},
  answers: { hints: { texts: 'list' } },
  lua: `
local texts = redis.call('HKEYS', hints)
if #texts > 0 then redis.call('DEL', hints) end
return {'hints', 'texts', texts}
`,
});

export type HintStore = ReturnType<typeof redisHintStore>;

/** The hints of one driver. Both methods reject while Redis can't be reached. */
export function redisHintStore(redis: Redis, prefix: string, driver: string) {
  const hints = hintsKey(prefix, driver);
  return {
    async add(added: readonly CapacityHint[]): Promise<void> {
      if (added.length === 0) return;
      await redis.hset(hints, new Map(added.map((hint) => [encodeHint(hint), '1'])));
    },
    /** Takes all hints. A leader that dies right after it loses them; the next one begins with all
     * values. */
    async take(): Promise<readonly CapacityHint[]> {
      const { texts } = await takeScript.run(redis, { hints }, {});
      return texts.flatMap((text) => decodeHint(text) ?? []);
    },
  };
}

import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';

/** A Lua script that is sent once per Redis and called by its digest from then on. */
export interface Script {
  /** @returns what the script returns, as Redis encodes it: the caller knows its shape */
  run(redis: Redis, keys: readonly string[], args: readonly (string | number)[]): Promise<unknown>;
}

/** Prepares a script; sends nothing. */
export function defineScript(lua: string): Script {
  const digest = createHash('sha1').update(lua).digest('hex');
  return {
    async run(redis, keys, args) {
      const rest = [keys.length, ...keys, ...args] as const;
      try {
        return await redis.evalsha(digest, ...rest);
      } catch (error) {
        if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error;
        return await redis.eval(lua, ...rest);
      }
    },
  };
}

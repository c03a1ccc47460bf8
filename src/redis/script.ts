import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';

/** Prepares a Lua script, which is sent once per Redis and called by its digest from then on. */
export function defineScript(lua: string) {
  const digest = createHash('sha1').update(lua).digest('hex');
  return {
    /** @returns what the script returns, as Redis encodes it: the caller knows its shape */
    async run(
      redis: Redis,
      keys: readonly string[],
      args: readonly (string | number)[],
    ): Promise<unknown> {
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

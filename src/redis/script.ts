import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';

/** A Lua script that is sent once per Redis and called by its digest from then on. */
export interface Script {
  /** @returns what the script returns, as Redis encodes it: the caller knows its shape */
  run(redis: Redis, keys: readonly string[], args: readonly (string | number)[]): Promise<unknown>;
}

/** Lua: runs a job at once if it waits to be tried again; `root` is the beginning of its queue's
 * keys. Returns whether it waited. */
export const END_WAIT = `
local function endWait(root, job, now)
  if not redis.call('ZSCORE', root .. 'delayed', job) then return false end
  redis.call('HSET', root .. job, 'delay', 0)
  redis.call('ZADD', root .. 'delayed', tonumber(now) * 4096, job)
  redis.call('ZADD', root .. 'marker', now, '1')
  return true
end
`;

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

import { messageOf } from '../runtime/error-message.ts';

/** Redis does not answer a run. A change may or may not have happened, so start no call. */
export class RedisUnavailable extends Error {
  override readonly name = 'RedisUnavailable';
}

/** @throws RedisUnavailable when Redis does not answer */
export function askRedis<T>(asked: Promise<T>): Promise<T> {
  return asked.catch((cause: unknown) => {
    throw new RedisUnavailable(`Redis does not answer: ${messageOf(cause)}`, { cause });
  });
}

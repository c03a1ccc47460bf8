import { messageOf } from '../runtime/error-message.ts';

/** Thrown when Redis does not answer: a change may or may not have happened, so start no call. */
export class RecordsUnavailable extends Error {
  override readonly name = 'RecordsUnavailable';
}

/** @throws RecordsUnavailable when Redis does not answer */
export function askRedis<T>(asked: Promise<T>): Promise<T> {
  return asked.catch((cause: unknown) => {
    const message = `the volume records can't be reached in Redis: ${messageOf(cause)}`;
    throw new RecordsUnavailable(message, { cause });
  });
}

import type { Redis } from 'ioredis';

/** Replaces all fields of a hash at once. Rejects while Redis can't be reached. */
export async function replaceHash(
  redis: Redis,
  key: string,
  fields: ReadonlyMap<string, string | number>,
): Promise<void> {
  const transaction = redis.multi().del(key);
  if (fields.size > 0) transaction.hset(key, new Map(fields));
  const results = await transaction.exec();
  const failed = results?.find(([error]) => error !== null)?.[0];
  if (failed) throw failed;
}

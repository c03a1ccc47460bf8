import type { Redis } from 'ioredis';
import { auditKey } from './key-names.ts';

export type AuditLedger = ReturnType<typeof redisAuditLedger>;

/** What one audit of a driver remembers for the next: when each handle was first found unknown,
 * Unix ms. */
export function redisAuditLedger(redis: Redis, prefix: string, driver: string) {
  const key = auditKey(prefix, driver);
  return {
    async read(): Promise<ReadonlyMap<string, number>> {
      const fields = Object.entries(await redis.hgetall(key));
      return new Map(fields.map(([handle, ms]) => [handle, Number(ms)]));
    },
    /** Replaces the whole ledger. */
    async write(seen: ReadonlyMap<string, number>): Promise<void> {
      const transaction = redis.multi().del(key);
      if (seen.size > 0) transaction.hset(key, new Map(seen));
      const results = await transaction.exec();
      const failed = results?.find(([error]) => error !== null)?.[0];
      if (failed) throw failed;
    },
  };
}

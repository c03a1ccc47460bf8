import type { Redis } from 'ioredis';
import { auditKey } from './key-names.ts';

/** What one audit remembers for the next. */
export interface AuditLedger {
  /** When each handle was first found unknown, Unix ms. */
  read(): Promise<ReadonlyMap<string, number>>;
  /** Replaces the whole ledger. */
  write(seen: ReadonlyMap<string, number>): Promise<void>;
}

/** The ledger in Redis. */
export function redisAuditLedger(redis: Redis, prefix: string, driver: string): AuditLedger {
  const key = auditKey(prefix, driver);
  return {
    read: async () =>
      new Map(Object.entries(await redis.hgetall(key)).map(([handle, ms]) => [handle, Number(ms)])),
    async write(seen) {
      const transaction = redis.multi().del(key);
      if (seen.size > 0) transaction.hset(key, new Map(seen));
      const results = await transaction.exec();
      const failed = results?.find(([error]) => error !== null)?.[0];
      if (failed) throw failed;
    },
  };
}

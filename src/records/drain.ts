import type { Redis } from 'ioredis';
import { dataEpochKey, openRecordsKey } from './key-names.ts';

/* The drain of an installation, for one driver: while it is set, the scripts that open records open
 * nothing that is not open (record rule 9). So once no record is open, none is opened any more. It
 * is a field of the hash of data-epoch.ts, which these scripts read anyway, and stays until an
 * operator ends it. */

const FIELD = 'drain';

/** Who drains, since when. */
export interface Drain {
  readonly by: string;
  /** Unix ms. */
  readonly atMs: number;
}

/** The drain of one driver, as operators set and end it. Methods reject while Redis can't be
 * reached. */
export function redisDrain(redis: Redis, prefix: string, driver: string) {
  const key = dataEpochKey(prefix, driver);
  return {
    /** Sets it; one that is set already stays as it is. */
    async begin(drain: Drain): Promise<void> {
      await redis.hsetnx(key, FIELD, JSON.stringify(drain));
    },
    /** @returns whether it was set */
    async end(): Promise<boolean> {
      return (await redis.hdel(key, FIELD)) === 1;
    },
    /** Whether it is set, the other provisioner that was seen since one of ours led, whether a leader
     * of ours has confirmed Redis' data, and how many records are open. */
    async read() {
      const [[drain, foreign, dataEpoch], open] = await Promise.all([
        redis.hmget(key, FIELD, 'foreign', 'epoch'),
        redis.hlen(openRecordsKey(prefix, driver)),
      ]);
      return {
        isDrained: typeof drain === 'string',
        otherProvisioner: foreign ?? undefined,
        isConfirmed: typeof dataEpoch === 'string',
        open,
      };
    },
  };
}

import type { Redis } from 'ioredis';
import { readHeartbeat } from '../../queue/heartbeat.ts';
import { queueName } from '../../queue/queue-keys.ts';
import { countJobs } from '../../queue/queues.ts';
import { readStatus } from '../../queue/status.ts';
import { redisDrain } from '../../records/provisioning-pause.ts';
import { type OpenRecord, openRecords } from '../../records/open-records.ts';

export interface DrainPlace {
  readonly redis: Redis;
  readonly prefix: string;
  readonly driver: string;
}

/** How far a drain is. */
export interface DrainState {
  /** Suspects first. `reason`: how the last run of its key ended; undefined where none has, or it
   * ended well. */
  readonly records: readonly (OpenRecord & { readonly reason: string | undefined })[];
  /** Keys that have a job: what this installation has not done yet. */
  readonly keys: { readonly claims: number; readonly volumes: number };
  readonly otherProvisioner: string | undefined;
  /** A leader of ours has confirmed Redis' data, without which no run does anything. */
  readonly isConfirmed: boolean;
  /** How long ago a worker of this driver was alive; undefined: never. */
  readonly workerAgeMs: number | undefined;
}

/** Reads all of it. Rejects while Redis can't be reached. */
export async function readDrainState({ redis, prefix, driver }: DrainPlace): Promise<DrainState> {
  const { otherProvisioner, isConfirmed } = await redisDrain(redis, prefix, driver).read();
  const records = [];
  for (const record of await openRecords(redis, prefix, driver)) {
    const status = await readStatus(redis, { prefix, driver, key: record.job });
    records.push({ ...record, reason: status?.reason });
  }
  const queueOf = (kind: 'claim' | 'volume') => ({ prefix, queue: queueName(kind, driver) });
  return {
    records,
    keys: {
      claims: await countJobs(redis, queueOf('claim')),
      volumes: await countJobs(redis, queueOf('volume')),
    },
    otherProvisioner,
    isConfirmed,
    workerAgeMs: await readHeartbeat(redis, queueOf('claim')),
  };
}

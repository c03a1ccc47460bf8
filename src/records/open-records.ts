import type { Redis } from 'ioredis';
import type { JobKey } from '../queue/contract.ts';
import { dataEpochKey, volumeRecordKey } from './key-names.ts';
import { openJobs } from './open-jobs.ts';
import { readRecordClock } from './record-clock.ts';
import { handleIn } from './stored-request.ts';

/** An open record for audits and operators, without its request, which contains class
 * parameters. */
export interface OpenRecord {
  readonly id: string;
  /** "namespace/claim", or the volume's name. */
  readonly object: string;
  readonly state: string;
  readonly ambiguous: boolean;
  readonly attempts: number;
  /** Unix ms, by Redis' clock. */
  readonly sinceMs: number;
  /** gRPC code of the last attempt, '' when it had none. */
  readonly lastCode: string;
  /** The volume's handle, where the driver has answered with it. */
  readonly handle: string | undefined;
  /** The gateway of the last attempt; '' where none was named. */
  readonly endpoint: string;
  /** The job that finishes it. */
  readonly job: JobKey;
  /** How long a run owns it at most; 0: none does. */
  readonly ownedForMs: number;
  /** The latest time at which a call of unknown end may still be under way, Unix ms by Redis'
   * clock; 0: there is none. The settle time begins then. */
  readonly callEndMs: number;
}

/** All open records of a driver, suspects first, then the oldest. */
export async function openRecords(
  redis: Redis,
  prefix: string,
  driver: string,
): Promise<readonly OpenRecord[]> {
  const records: OpenRecord[] = [];
  const { nowMs, redisNowMs } = await readRecordClock(redis, dataEpochKey(prefix, driver));
  for (const [id, job] of await openJobs(redis, prefix, driver)) {
    const key = volumeRecordKey(prefix, driver, id);
    const fields = ['amb', 'n', 'since', 'code', 'ans', 'ep', 'call'];
    const [amb, n, since, code, answer, endpoint, call] = await redis.hmget(key, ...fields);
    const [state, owner, until] = await redis.hmget(key, 'state', 'owner', 'until');
    if (state === null || state === undefined) continue;
    records.push({
      id,
      object: job.namespace === '' ? job.name : `${job.namespace}/${job.name}`,
      state,
      ambiguous: amb === '1',
      attempts: Number(n),
      sinceMs: Number(since),
      lastCode: code ?? '',
      handle: handleIn(answer ?? ''),
      endpoint: endpoint ?? '',
      job,
      ownedForMs: owner ? Math.max(0, Number(until) - nowMs) : 0,
      callEndMs: Number(call) > 0 ? Number(call) - nowMs + redisNowMs : 0,
    });
  }
  const rank = (record: OpenRecord): number => (record.state === 'suspect' ? 0 : 1);
  return records.sort((a, b) => rank(a) - rank(b) || a.sinceMs - b.sinceMs);
}

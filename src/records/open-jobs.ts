import type { Redis } from 'ioredis';
import { jobData, keyId, parseJob, type JobKey } from '../queue/contract.ts';
import { openRecordsKey } from './key-names.ts';

/** The job key of each open record of a driver, by record id. A resync enqueues them, because claim
 * and PV of an open record may be gone. */
export async function openJobs(
  redis: Redis,
  prefix: string,
  driver: string,
): Promise<ReadonlyMap<string, JobKey>> {
  const fields = await redis.hgetall(openRecordsKey(prefix, driver));
  const jobs = Object.entries(fields).flatMap(([id, text]) => {
    const key = decodeJob(text);
    return key === undefined ? [] : [[id, key] as const];
  });
  return new Map(jobs);
}

const PAGE = 1000;

/** The ids of the records that are open for a job. Reads all open records, in pages. */
export async function openIdsOf(
  redis: Redis,
  openKey: string,
  job: JobKey,
): Promise<readonly string[]> {
  const ids = new Set<string>();
  let cursor = '0';
  do {
    const [next, fields] = await redis.hscan(openKey, cursor, 'COUNT', PAGE);
    for (let i = 0; i < fields.length; i += 2) {
      const key = decodeJob(fields[i + 1] ?? '');
      if (key !== undefined && keyId(key) === keyId(job)) ids.add(fields[i] ?? '');
    }
    cursor = next;
  } while (cursor !== '0');
  return [...ids];
}

/** The text by which a record names its job. */
export function encodeJob(key: JobKey): string {
  return JSON.stringify(jobData(key));
}

function decodeJob(text: string): JobKey | undefined {
  try {
    const parsed = parseJob(JSON.parse(text));
    return parsed.ok ? parsed.key : undefined;
  } catch {
    return undefined;
  }
}

import type { Redis } from 'ioredis';
import { jobData, parseJob, type JobKey } from '../queue/contract.ts';
import { openRecordsKey } from './key-names.ts';
import { parseJson } from '../runtime/json.ts';

/** Records that are read at a time: Redis does nothing else meanwhile. */
const PAGE = 1000;

/** The job key of each open record of a driver, by record id. A resync enqueues them, because claim
 * and PV of an open record may be gone. */
export async function openJobs(
  redis: Redis,
  prefix: string,
  driver: string,
): Promise<ReadonlyMap<string, JobKey>> {
  const jobs = new Map<string, JobKey>();
  const pages = redis.hscanStream(openRecordsKey(prefix, driver), { count: PAGE });
  for await (const page of pages as AsyncIterable<readonly string[]>)
    for (let i = 0; i < page.length; i += 2) {
      const key = decodeJob(page[i + 1] ?? '');
      if (key !== undefined) jobs.set(page[i] ?? '', key);
    }
  return jobs;
}

/** The text by which a record names its job. */
export function encodeJob(key: JobKey): string {
  return JSON.stringify(jobData(key));
}

function decodeJob(text: string): JobKey | undefined {
  const parsed = parseJob(parseJson(text));
  return parsed.ok ? parsed.key : undefined;
}

import type { Redis } from 'ioredis';
import { jobData, parseJob } from '../contract.ts';
import type { JobKey } from '../contract.ts';
import { openRecordsKey } from '../names.ts';

/** The job that belongs to each open record of a driver, by record id: what re-adding starts from, since its claim or PV may be gone. */
export async function openJobs(redis: Redis, prefix: string, driver: string): Promise<ReadonlyMap<string, JobKey>> {
  const fields = await redis.hgetall(openRecordsKey(prefix, driver));
  const jobs = Object.entries(fields).flatMap(([id, text]) => {
    const key = readJob(text);
    return key === undefined ? [] : [[id, key] as const];
  });
  return new Map(jobs);
}

/** How a record names its job. */
export function writeJob(key: JobKey): string {
  return JSON.stringify(jobData(key));
}

function readJob(text: string): JobKey | undefined {
  try {
    const parsed = parseJob(JSON.parse(text));
    return parsed.ok ? parsed.key : undefined;
  } catch {
    return undefined;
  }
}

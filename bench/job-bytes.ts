import type { Redis } from 'ioredis';
import { queueRoot } from '#src/queue/bullmq-layout.ts';
import { keyId, parseJob } from '#src/queue/contract.ts';
import { queueName } from '#src/queue/key-names.ts';
import { openRecordsKey, volumeRecordKey } from '#src/records/key-names.ts';
import type { Member } from './testbed.ts';
import type { Workload } from './workload.ts';

/** Memory that Redis needs for one claim under way. */
export interface JobBytes {
  /** Hash of a waiting job. */
  readonly job: number;
  /** Its deduplication key. */
  readonly deduplication: number;
  /** Hash of an open volume record, request and PV skeleton included. */
  readonly record: number;
}

export interface JobBytesOptions {
  readonly redis: Redis;
  readonly prefix: string;
  readonly driver: string;
  readonly members: readonly Member[];
  readonly workload: Workload;
  readonly claim: string;
  /** Stops and continues a process of the testbed. */
  readonly signal: (pid: number, signal: 'SIGSTOP' | 'SIGCONT') => void;
  readonly pause: (ms: number) => Promise<void>;
}

/** Stops the workers to measure a waiting job, then the driver to measure an open record. Continues
 * both at the end. */
export async function measureJobBytes(o: JobBytesOptions): Promise<JobBytes> {
  const root = queueRoot(o.prefix, queueName('claim', o.driver));
  const jobs = o.members.filter(({ name }) => name.startsWith('jobs'));
  const drivers = o.members.filter(({ name }) => name === 'sandbox-driver');
  const each = (members: readonly Member[], signal: 'SIGSTOP' | 'SIGCONT'): void =>
    members.forEach(({ pid }) => o.signal(pid, signal));
  const bytes = async (key: string): Promise<number> => Number(await o.redis.memory('USAGE', key));

  each(jobs, 'SIGSTOP');
  try {
    await o.workload.createOnly(o.claim);
    const id = await eventually(o.pause, async () => {
      const [waiting] = await o.redis.zrange(`${root}prioritized`, '0', '0');
      return waiting ?? (await o.redis.lindex(`${root}wait`, 0)) ?? undefined;
    });
    const parsed = parseJob(JSON.parse((await o.redis.hget(root + id, 'data')) ?? '{}'));
    if (!parsed.ok) throw new Error(parsed.reason);
    const job = await bytes(root + id);
    const deduplication = await bytes(`${root}de:${keyId(parsed.key)}`);
    each(drivers, 'SIGSTOP');
    each(jobs, 'SIGCONT');
    const recordId = await eventually(
      o.pause,
      async () => (await o.redis.hkeys(openRecordsKey(o.prefix, o.driver)))[0],
    );
    const record = await bytes(volumeRecordKey(o.prefix, o.driver, recordId));
    return { job, deduplication, record };
  } finally {
    each(drivers, 'SIGCONT');
    each(jobs, 'SIGCONT');
  }
}

async function eventually<T>(
  pause: (ms: number) => Promise<void>,
  find: () => Promise<T | undefined>,
): Promise<T> {
  for (let tries = 0; tries < 500; tries += 1) {
    const found = await find();
    if (found !== undefined) return found;
    await pause(10);
  }
  throw new Error('a claim did not show up in Redis within 5 s');
}

import type { Redis } from 'ioredis';
import { keyPrefix } from '#src/redis/key-names.ts';
import { openRecordsKey } from '#src/records/key-names.ts';
import { queueName } from '#src/queue/key-names.ts';
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

/** Holds the workers to see a waiting job, then the driver to see an open record. The claim is
 * finished afterwards. */
export async function measureJobBytes(o: JobBytesOptions): Promise<JobBytes> {
  const queue = `${keyPrefix(o.prefix)}:${queueName('claim', o.driver)}`;
  const jobs = o.members.filter(({ name }) => name.startsWith('jobs'));
  const drivers = o.members.filter(({ name }) => name === 'sandbox-driver');
  const each = (members: readonly Member[], signal: 'SIGSTOP' | 'SIGCONT'): void =>
    members.forEach(({ pid }) => o.signal(pid, signal));
  const bytes = async (key: string): Promise<number> => Number(await o.redis.memory('USAGE', key));

  each(jobs, 'SIGSTOP');
  try {
    await o.workload.createOnly(o.claim);
    const id = await eventually(o.pause, async () => {
      const [waiting] = await o.redis.zrange(`${queue}:prioritized`, '0', '0');
      return waiting ?? (await o.redis.lindex(`${queue}:wait`, 0)) ?? undefined;
    });
    const data = JSON.parse((await o.redis.hget(`${queue}:${id}`, 'data')) ?? '{}') as {
      uid?: string;
    };
    const job = await bytes(`${queue}:${id}`);
    const deduplication = await bytes(`${queue}:de:claim/${data.uid}`);
    each(drivers, 'SIGSTOP');
    each(jobs, 'SIGCONT');
    const recordId = await eventually(
      o.pause,
      async () => (await o.redis.hkeys(openRecordsKey(o.prefix, o.driver)))[0],
    );
    const record = await bytes(`${keyPrefix(o.prefix)}:volume:${o.driver}:${recordId}`);
    return { job, deduplication, record };
  } finally {
    each(drivers, 'SIGCONT');
    each(jobs, 'SIGCONT');
  }
}

async function eventually<T>(
  pause: (ms: number) => Promise<void>,
  look: () => Promise<T | undefined>,
): Promise<T> {
  for (let tries = 0; tries < 500; tries += 1) {
    const found = await look();
    if (found !== undefined) return found;
    await pause(10);
  }
  throw new Error('a claim did not show up in Redis within 5 s');
}

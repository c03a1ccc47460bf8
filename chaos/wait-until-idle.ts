import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { redisOptions } from '#src/redis/client.ts';
import { DEFAULT_PREFIX, keyPrefix } from '#src/redis/key-prefix.ts';
import { openRecordsKey } from '#src/records/key-names.ts';
import { queueName } from '#src/queue/queue-keys.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { readCallLog, underWay } from './call-log.ts';
import type { Testbed } from './testbed.ts';
import type { Workload } from './workload.ts';

const POLL_PERIOD_MS = 500;
/** Longer than the time between two checks of a worker for creations that Redis has lost, which
 * only that worker knows of. Several polls, because one may miss work that moves from place to
 * place. */
const IDLE_POLLS = 12;

/** Waits until no work is outstanding: pending claims, Released PVs, jobs, open records, driver
 * calls.
 * @returns what is outstanding when the signal aborts */
export async function waitUntilIdle(
  testbed: Testbed,
  workload: Workload,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const redis = openRedis(testbed);
  const queues = (['claim', 'volume'] as const).map(
    (kind) =>
      new Queue(queueName(kind, testbed.driverName), {
        connection: redis,
        prefix: keyPrefix(DEFAULT_PREFIX),
      }),
  );
  const openKey = openRecordsKey(DEFAULT_PREFIX, testbed.driverName);
  const readOutstanding = async (): Promise<readonly string[]> => {
    const calls = underWay(readCallLog(testbed.callLog));
    const records = await redis.hkeys(openKey);
    const counts = await Promise.all(
      queues.map(async (queue) => {
        const count = await queue.getJobCountByTypes('wait', 'active', 'delayed', 'prioritized');
        return count === 0 ? [] : [`${count} jobs in ${queue.name}`];
      }),
    );
    return [
      ...workload.claims
        .filter(({ isBound, deleteSentMs }) => !isBound && deleteSentMs === undefined)
        .map(({ name, uid }) => `claim ${name} (${uid}) is not Bound`),
      ...[...workload.volumes.values()]
        .filter(({ isThere, phase }) => isThere && phase !== 'Bound')
        .map(({ name, phase }) => `PV ${name} is ${phase}`),
      ...records.map((id) => `the record of ${id} is open`),
      ...counts.flat(),
      ...(calls === 0 ? [] : [`${calls} driver calls are under way`]),
    ];
  };
  try {
    for (let idlePolls = 0; ;) {
      const left = await readOutstanding();
      idlePolls = left.length === 0 ? idlePolls + 1 : 0;
      if (idlePolls === IDLE_POLLS || signal.aborted) return left;
      await systemClock.sleep(POLL_PERIOD_MS, signal);
    }
  } finally {
    await Promise.allSettled(queues.map((queue) => queue.close()));
    redis.disconnect();
  }
}

/** The ids of the volume records that are open. */
export async function readOpenRecords(testbed: Testbed): Promise<readonly string[]> {
  const redis = openRedis(testbed);
  try {
    return await redis.hkeys(openRecordsKey(DEFAULT_PREFIX, testbed.driverName));
  } finally {
    redis.disconnect();
  }
}

function openRedis(testbed: Testbed): Redis {
  const redis = new Redis(redisOptions(testbed.redis.url, 'plain'));
  redis.on('error', () => undefined);
  return redis;
}

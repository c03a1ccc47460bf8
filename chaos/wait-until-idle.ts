import { Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { leaseName } from '#src/election/lease.ts';
import { listJournal } from '#src/journal/list-journal.ts';
import { DEFAULT_PREFIX, keyPrefix } from '#src/redis/key-prefix.ts';
import { queueName } from '#src/queue/queue-keys.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { readCallLog, underWay } from './call-log.ts';
import type { Testbed } from './testbed.ts';
import type { Workload } from './workload.ts';

const POLL_PERIOD_MS = 500;
/** Several, because one may miss work that moves from place to place. */
const IDLE_POLLS = 6;

/** Waits until no work is outstanding: pending claims, PVs that are not Bound, journal entries,
 * jobs, driver calls.
 * @returns what is outstanding when the signal aborts */
export async function waitUntilIdle(
  testbed: Testbed,
  workload: Workload,
  signal: AbortSignal,
): Promise<readonly string[]> {
  for (let idlePolls = 0; ;) {
    const left = await readOutstanding(testbed, workload);
    idlePolls = left.length === 0 ? idlePolls + 1 : 0;
    if (idlePolls === IDLE_POLLS || signal.aborted) return left;
    await systemClock.sleep(POLL_PERIOD_MS, signal);
  }
}

async function readOutstanding(testbed: Testbed, workload: Workload): Promise<readonly string[]> {
  const { client, driverName: driver, namespace } = testbed;
  const calls = underWay(readCallLog(testbed.callLog));
  const place = { driver, lease: leaseName(driver), namespace };
  const entries = await listJournal(client, place);
  const jobs = await testbed.redis
    .use((redis) => countJobs(redis, driver))
    .catch((error: unknown) => [`jobs could not be counted: ${String(error)}`]);
  return [
    ...workload.claims
      .filter(({ isBound, deleteSentMs }) => !isBound && deleteSentMs === undefined)
      .map(({ name, uid }) => `claim ${name} (${uid}) is not Bound`),
    ...[...workload.volumes.values()]
      .filter(({ isThere, phase }) => isThere && phase !== 'Bound')
      .map(({ name, phase }) => `PV ${name} is ${phase}`),
    ...entries.map(({ uid, object }) => `the journal ${object} has an entry of ${uid}`),
    ...jobs,
    ...(calls === 0 ? [] : [`${calls} driver calls are under way`]),
  ];
}

/** Finished ones too: the leader has to remove them. */
async function countJobs(redis: Redis, driver: string): Promise<readonly string[]> {
  const left: string[] = [];
  for (const kind of ['claim', 'volume'] as const) {
    const prefix = keyPrefix(DEFAULT_PREFIX);
    const queue = new Queue(queueName(kind, driver), { connection: redis, prefix });
    queue.on('error', () => undefined);
    try {
      const counts = await queue.getJobCounts();
      const found = Object.entries(counts).filter(([, count]) => count > 0);
      left.push(...found.map(([state, count]) => `${count} jobs are ${state} in ${queue.name}`));
    } finally {
      await queue.close();
    }
  }
  return left;
}

import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { CsiClient } from '#src/gateway-client/client.ts';
import { JOB_KINDS } from '#src/queue/contract.ts';
import { queueName } from '#src/queue/queue-keys.ts';
import { listDrivers } from '#src/queue/queues.ts';
import type { RedisAccess } from '#src/redis/access.ts';
import { redisOptions } from '#src/redis/client.ts';
import { keyPrefix } from '#src/redis/key-prefix.ts';
import { parseAddress } from '#src/runtime/address.ts';
import type { Clock } from '#src/runtime/clock.ts';
import type { Logger } from '#src/runtime/log.ts';

export interface LeftoverOptions {
  readonly redisUrl: string;
  readonly redisAccess: RedisAccess;
  readonly prefix: string;
  /** Address of the driver's socket. */
  readonly driver: string;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Waits until nothing is left of deleted claims: no volume in the driver, no job.
 * @returns what is left when the signal aborts */
export async function waitForNoLeftovers(
  options: LeftoverOptions,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const redis = new Redis(redisOptions(options.redisUrl, 'plain', options.redisAccess));
  redis.on('error', (error) => options.log.debug({ err: error }, 'Redis'));
  const driver = new CsiClient({
    address: parseAddress('csi-address', options.driver),
  });
  try {
    for (;;) {
      const left = [
        ...(await volumesInDriver(driver)),
        ...(await unfinishedJobs(redis, options.prefix)),
      ];
      if (left.length === 0 || signal.aborted) return left;
      await options.clock.sleep(100, signal);
    }
  } finally {
    driver.close();
    redis.disconnect();
  }
}

async function volumesInDriver(driver: CsiClient): Promise<string[]> {
  const { entries } = await driver.listVolumes({}, { timeoutMs: 5_000 });
  return entries.map(({ volume }) => `volume ${volume?.volumeId ?? '?'} in the driver`);
}

async function unfinishedJobs(redis: Redis, prefix: string): Promise<string[]> {
  const left: string[] = [];
  const drivers = await listDrivers(redis, prefix);
  for (const name of drivers.flatMap((driver) =>
    JOB_KINDS.map((kind) => queueName(kind, driver)),
  )) {
    const queue = new Queue(name, { connection: redis, prefix: keyPrefix(prefix) });
    const counts = await queue.getJobCounts('wait', 'active', 'delayed', 'prioritized', 'failed');
    for (const [state, count] of Object.entries(counts))
      if (count > 0) left.push(`${count} jobs ${state} in ${name}`);
    await queue.close();
  }
  return left;
}

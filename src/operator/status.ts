import type { Redis } from 'ioredis';
import {
  countFaults,
  type DriverReport,
  factsOf,
  groupReport,
  renderReport,
  reportDriver,
  troublesOf,
} from '../explain/report.ts';
import { listDrivers } from '../queue/queues.ts';
import { readProcesses } from '../redis/processes.ts';
import { systemClock } from '../runtime/clock.ts';
import { chooseDriver, type Means, Refusal, type Result, commandMain } from './command.ts';
import { status } from './flags.ts';
import { lookUntilItLasts, repeat } from './repeat.ts';

/** Says what an installation does, and what is wrong. */
export const main = commandMain({ name: 'status', ...status }, run);

async function run(means: Means<typeof status.flags>): Promise<Result> {
  const { flags, stopping } = means.context;
  const { redisPrefix: prefix, driverName } = flags;
  const redis = await means.openRedis();
  const look = async (): Promise<readonly DriverReport[]> => {
    const reports: DriverReport[] = [];
    for (const driver of await listDrivers(redis, prefix))
      if (driverName === '' || driver === driverName)
        reports.push(await reportDriver({ redis, prefix, driver }));
    return reports;
  };
  return repeat(means, async () => {
    const reports = (await lookUntilItLasts(look, stopping)).map(groupReport);
    if (reports.length === 0) await refuse(redis, prefix, driverName);
    const nowMs = systemClock.nowMs();
    return {
      status: reports.every(({ isFine }) => isFine) ? 0 : 1,
      lines: reports.flatMap((each) => renderReport(each, nowMs, flags.output === 'wide')),
      json: { drivers: reports.map(countFaults) },
      facts: reports.map(factsOf),
    };
  });
}

/** Says why there is nothing to show: what the processes lack, where no driver has answered yet.
 * @throws Refusal */
async function refuse(redis: Redis, prefix: string, driverName: string): Promise<void> {
  const troubles = troublesOf(await readProcesses(redis, prefix));
  if (driverName === '' && troubles.length > 0)
    throw new Refusal(`no driver is served yet: ${troubles.join('; ')}`);
  await chooseDriver(redis, prefix, driverName);
}

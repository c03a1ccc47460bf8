import {
  countFaults,
  type DriverReport,
  factsOf,
  groupReport,
  renderReport,
  reportDriver,
} from '../explain/report.ts';
import { listDrivers } from '../queue/queues.ts';
import { systemClock } from '../runtime/clock.ts';
import { chooseDriver, type Means, type Result, commandMain } from './command.ts';
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
    // Refuses what it does not find.
    if (reports.length === 0) await chooseDriver(redis, prefix, driverName);
    const nowMs = systemClock.nowMs();
    return {
      status: reports.every(({ isFine }) => isFine) ? 0 : 1,
      lines: reports.flatMap((each) => renderReport(each, nowMs, flags.output === 'wide')),
      json: { drivers: reports.map(countFaults) },
      facts: reports.map(factsOf),
    };
  });
}

import { countFaults, type DriverReport, renderReport, reportDriver } from '../explain/report.ts';
import { systemClock } from '../runtime/clock.ts';
import { commandMain, type Means, type Result } from './command.ts';
import { status } from './flags.ts';
import { servedDrivers } from './installation.ts';

/** Shows the state of an installation, and what is wrong. */
export const main = commandMain(status, run);

async function run({ context, openRedis }: Means<typeof status.flags>): Promise<Result> {
  const { redisPrefix: prefix, driverName, output } = context.flags;
  const redis = await openRedis();
  const reports: DriverReport[] = [];
  for (const driver of await servedDrivers(redis, prefix, driverName))
    reports.push(await reportDriver({ redis, prefix, driver }));
  const nowMs = systemClock.nowMs();
  return {
    status: reports.every(({ isFine }) => isFine) ? 0 : 1,
    lines: reports.flatMap((each) => renderReport(each, nowMs, output === 'wide')),
    json: { drivers: reports.map(countFaults) },
  };
}

import {
  type DriverReport,
  factsOf,
  renderReport,
  reportDriver,
  withFaults,
} from '../explain/report.ts';
import { listDrivers } from '../queue/queues.ts';
import { systemClock } from '../runtime/clock.ts';
import { chooseDriver, type Means, Refusal, type Result, commandMain } from './command.ts';
import { status } from './flags.ts';
import { repeat } from './repeat.ts';

/** Says what an installation does, and what is wrong. */
export const main = commandMain({ name: 'status', ...status }, run);

async function run(means: Means<typeof status.flags>): Promise<Result> {
  const { flags } = means.context;
  const { redisPrefix: prefix, driverName } = flags;
  const redis = await means.openRedis();
  return repeat(means, async () => {
    const nowMs = systemClock.nowMs();
    const drivers =
      driverName === ''
        ? await listDrivers(redis, prefix)
        : [await chooseDriver(redis, prefix, driverName)];
    if (drivers.length === 0)
      throw new Refusal(
        `this Redis and --redis-prefix=${prefix} have no driver: start ingest beside a driver`,
      );
    const reports: DriverReport[] = [];
    for (const driver of drivers) reports.push(await reportDriver({ redis, prefix, driver }));
    return {
      status: reports.every(({ isFine }) => isFine) ? 0 : 1,
      lines: reports.flatMap((each) => renderReport(each, nowMs, flags.output === 'wide')),
      json: { drivers: reports.map(withFaults) },
      facts: reports.map(factsOf),
    };
  });
}

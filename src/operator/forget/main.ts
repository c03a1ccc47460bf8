import { userInfo } from 'node:os';
import { openRedis } from '../../redis/connection.ts';
import { forgetRecord } from '../../records/forget.ts';
import { systemClock } from '../../runtime/clock.ts';
import { UsageError } from '../../runtime/flags.ts';
import { runProcess, type Invocation, type ProcessContext } from '../../runtime/process.ts';
import { forget } from '../flags.ts';

/** Drops one record and ends: 0 when it is gone, 1 when it is in use. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, {
    name: 'forget',
    summary: forget.summary,
    table: forget.flags,
    word: 'UID',
    start,
  });
}

async function start(p: ProcessContext<typeof forget.flags>): Promise<void> {
  const { flags: f, log, closers } = p;
  const [id] = p.words;
  if (id === undefined)
    throw new UsageError(
      'name the record: sutler forget UID --driver-name=DRIVER --why=REASON (sutler audit lists open records)',
    );
  if (f.driverName === '')
    throw new UsageError('--driver-name is missing: name the driver whose record it is');
  if (f.why === '')
    throw new UsageError('--why is missing: say why the record may go; the reason is kept');
  const link = openRedis({
    url: f.redisUrl,
    role: 'plain',
    name: 'sutler-forget',
    log: log.child({}, { level: 'warn' }),
  });
  closers.add('Redis', () => link.close());
  const place = { prefix: f.redisPrefix, driver: f.driverName, id };
  const result = await forgetRecord(link.redis, place, {
    by: userInfo().username,
    why: f.why,
    atMs: systemClock.nowMs(),
  });
  switch (result.kind) {
    case 'forgotten':
      log.warn(
        { id, driver: f.driverName, state: result.state, why: f.why },
        'volume record forgotten',
      );
      p.stdout.write(
        `forgot ${id} (${result.state}). If its volume exists, nothing in the cluster names it: sutler audit will report it.\n`,
      );
      return p.stop(0);
    case 'none':
      p.stdout.write(`there is no record ${id} of driver ${f.driverName}\n`);
      return p.stop(0);
    case 'busy':
      p.stdout.write(
        `a run is at ${id} for up to ${Math.ceil(result.waitMs / 1000)} s more; try again then\n`,
      );
      return p.stop(1);
  }
}

import { userInfo } from 'node:os';
import { openRedisAccess } from '../../redis/access.ts';
import { openRedis } from '../../redis/connection.ts';
import { forgetRecord, type Forgotten } from '../../records/forget.ts';
import { systemClock } from '../../runtime/clock.ts';
import { UsageError } from '../../runtime/flags.ts';
import { escapeControls } from '../../runtime/printable.ts';
import { runProcess, type Invocation, type ProcessContext } from '../../runtime/process.ts';
import { forget } from '../flags.ts';

/** Drops one volume record. Exit status 0 if there is no such record now, 1 if a run owns it. */
export function main(invocation: Invocation): Promise<void> {
  const { summary, flags: table } = forget;
  return runProcess(invocation, { name: 'forget', summary, table, word: 'UID', start });
}

async function start(context: ProcessContext<typeof forget.flags>): Promise<void> {
  const { redisUrl: url, redisPrefix: prefix, driverName: driver, why } = context.flags;
  const [id] = context.words;
  if (id === undefined)
    throw new UsageError(
      'name the record: sutler forget UID --driver-name=DRIVER --why=REASON ' +
        '(sutler audit lists open records)',
    );
  if (driver === '')
    throw new UsageError('--driver-name is missing: name the driver of the record');
  if (why === '')
    throw new UsageError('--why is missing: give the reason for dropping the record; it is kept');
  const log = context.log.child({}, { level: 'warn' });
  const access = await openRedisAccess({ ...context, log });
  const link = openRedis({ url, access, role: 'plain', name: 'sutler-forget', log });
  context.closers.add('Redis', () => link.close());

  const note = { by: userInfo().username, why, atMs: systemClock.nowMs() };
  const result = await forgetRecord(link.redis, { prefix, driver, id }, note);
  if (result.kind === 'forgotten')
    log.warn({ id, driver, state: result.state, why }, 'volume record forgotten');
  context.stdout.write(`${escapeControls(describeResult(id, driver, result))}\n`);
  context.stop(result.kind === 'busy' ? 1 : 0);
}

function describeResult(id: string, driver: string, result: Forgotten): string {
  switch (result.kind) {
    case 'forgotten':
      return (
        `forgot ${id} (${result.state}). If its volume exists, nothing in the cluster names it: ` +
        'run sutler audit to find it'
      );
    case 'none':
      return `driver ${driver} has no record ${id}; sutler audit lists open records`;
    case 'busy':
      return (
        `a run owns ${id} for up to ${Math.ceil(result.waitMs / 1000)} s more; ` +
        'nothing was changed, try again after that'
      );
  }
}

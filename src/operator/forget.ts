import { forgetRecord } from '../records/forget.ts';
import { openJobs } from '../records/open-records.ts';
import { UsageError } from '../runtime/flags.ts';
import {
  chooseDriver,
  didYouMean,
  type Means,
  noteOf,
  Refusal,
  type Result,
  commandMain,
} from './command.ts';
import { forget } from './flags.ts';

/** Drops one volume record. */
export const main = commandMain({ name: 'forget', ...forget }, run);

async function run({ context, openRedis }: Means<typeof forget.flags>): Promise<Result> {
  const { redisPrefix: prefix, driverName, why } = context.flags;
  const [id] = context.words;
  if (id === undefined)
    throw new UsageError(
      'name the record: sutler forget UID --why=REASON (sutler audit lists open records)',
    );
  if (why === '')
    throw new UsageError('--why is missing: give the reason for dropping the record; it is kept');
  const redis = await openRedis();
  const driver = await chooseDriver(redis, prefix, driverName);
  const result = await forgetRecord(redis, { prefix, driver, id }, noteOf(why));
  if (result.kind === 'busy')
    throw new Refusal(
      `a run owns ${id} for up to ${Math.ceil(result.waitMs / 1000)} s more; ` +
        'nothing was changed, try again after that',
    );
  if (result.kind === 'closed')
    throw new Refusal(
      `the volume record ${id} of driver ${driver} (${result.state}) is closed; ` +
        'there is nothing to drop',
    );
  if (result.kind === 'none') {
    const open = await openJobs(redis, prefix, driver);
    // Its claim may be named by mistake.
    const [ofClaim] = [...open].find(([, { name }]) => name === id.split('/').at(-1)) ?? [];
    const guess =
      ofClaim === undefined ? didYouMean(id, [...open.keys()]) : `: did you mean ${ofClaim}?`;
    throw new Refusal(
      `driver ${driver} has no volume record ${id} ` +
        `(${open.size} records are open; sutler audit lists them)${guess}`,
    );
  }
  const { state } = result;
  const line =
    `forgot ${id} (${state}). If its volume exists, nothing in the cluster names it: ` +
    'run sutler audit to find it';
  return { status: 0, lines: [line], json: { driver, id, state } };
}

import { userInfo } from 'node:os';
import { listQueues } from '../../queue/registry.ts';
import { redisDrain } from '../../records/drain.ts';
import { openRedisAccess } from '../../redis/access.ts';
import { openRedis } from '../../redis/connection.ts';
import { signalWithin, systemClock } from '../../runtime/clock.ts';
import { UsageError } from '../../runtime/flags.ts';
import { escapeControls } from '../../runtime/printable.ts';
import { runProcess, type Invocation, type ProcessContext } from '../../runtime/process.ts';
import { drain as command } from '../flags.ts';
import { describeDrain, describeProgress } from './describe-drain.ts';
import { readDrainState, type DrainPlace } from './drain-state.ts';

type Context = ProcessContext<typeof command.flags>;

/** Drains sutler for one driver, or ends that. Exit status 0 if no volume record is open, or the
 * drain was ended; 1 if some are. */
export function main(invocation: Invocation): Promise<void> {
  const { summary, flags: table } = command;
  return runProcess(invocation, { name: 'drain', summary, table, word: 'DRIVER', start });
}

async function start(context: Context): Promise<void> {
  const { flags, words, closers } = context;
  const [driver] = words;
  if (driver === undefined)
    throw new UsageError('name the driver: sutler drain DRIVER [--wait] [--undo]');
  if (flags.undo && flags.wait) throw new UsageError('--undo and --wait: give one of them');
  const log = context.log.child({}, { level: 'warn' });
  const access = await openRedisAccess({ ...context, log });
  const { redisUrl: url, redisPrefix: prefix } = flags;
  const link = openRedis({ url, access, role: 'plain', name: 'sutler-drain', log });
  closers.add('Redis', () => link.close());
  const place = { redis: link.redis, prefix, driver };
  await checkDriver(place);
  await (flags.undo ? undo(context, place) : drain(context, place));
}

/** @throws UsageError for a driver that no ingest has registered, since nothing of it would ever be
 *   open */
async function checkDriver({ redis, prefix, driver }: DrainPlace): Promise<void> {
  const drivers = new Set((await listQueues(redis, prefix)).map((queue) => queue.driver));
  if (drivers.has(driver)) return;
  const known = [...drivers].join(', ') || 'none';
  throw new UsageError(
    `no sutler serves driver ${driver} with this Redis and --redis-prefix; served here: ${known}`,
  );
}

async function undo(context: Context, { redis, prefix, driver }: DrainPlace): Promise<void> {
  const wasDrained = await redisDrain(redis, prefix, driver).end();
  say(context, [
    wasDrained
      ? `the drain of ${driver} is ended: sutler starts new work again where one of its ingests leads`
      : `${driver} was not drained; nothing was changed`,
  ]);
  context.stop(0);
}

async function drain(context: Context, place: DrainPlace): Promise<void> {
  const { flags, stopping } = context;
  await beginDrain(place);
  if (flags.wait) await waitUntilDrained(context, place, signalWithin(stopping, flags.waitLimitMs));
  const state = await readDrainState(place);
  say(context, describeDrain(place.driver, state));
  context.stop(state.records.length === 0 ? 0 : 1);
}

function beginDrain({ redis, prefix, driver }: DrainPlace): Promise<void> {
  const mark = { by: userInfo().username, atMs: systemClock.nowMs() };
  return redisDrain(redis, prefix, driver).begin(mark);
}

const POLL_MS = 1_000;

/** Prints a line whenever the number of open records changes. */
async function waitUntilDrained(
  context: Context,
  place: DrainPlace,
  limit: AbortSignal,
): Promise<void> {
  const store = redisDrain(place.redis, place.prefix, place.driver);
  let shown: number | undefined;
  while (!limit.aborted) {
    const { open, isDrained } = await store.read();
    // Redis was emptied meanwhile, or somebody ended the drain.
    if (!isDrained) await beginDrain(place);
    if (open !== shown) say(context, [describeProgress(open, systemClock.nowMs())]);
    shown = open;
    if (open === 0 && isDrained) return;
    await systemClock.sleep(POLL_MS, limit);
  }
}

function say({ stdout }: Context, lines: readonly string[]): void {
  for (const line of lines) stdout.write(`${escapeControls(line)}\n`);
}

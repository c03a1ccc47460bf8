import { redisDrain } from '../../records/provisioning-pause.ts';
import { signalWithin, systemClock } from '../../runtime/clock.ts';
import { UsageError } from '../../runtime/flags.ts';
import type { Invocation } from '../../runtime/process.ts';
import { chooseDriver, type Means, noteOf, type Result, runCommand } from '../command.ts';
import { drain as command } from '../flags.ts';
import { describeDrain, describeProgress } from './describe-drain.ts';
import { type DrainPlace, readDrainState } from './drain-state.ts';

type DrainMeans = Means<typeof command.flags>;

/** Drains sutler for one driver, or ends that. */
export function main(invocation: Invocation): Promise<void> {
  return runCommand(invocation, { name: 'drain', ...command }, run);
}

async function run(means: DrainMeans): Promise<Result> {
  const { flags, words } = means.context;
  if (flags.undo && flags.wait) throw new UsageError('--undo and --wait: give one of them');
  const redis = await means.openRedis();
  const prefix = flags.redisPrefix;
  const driver = await chooseDriver(redis, prefix, words[0] ?? flags.driverName);
  const place = { redis, prefix, driver };
  return flags.undo ? undo(place) : drain(means, place);
}

async function undo({ redis, prefix, driver }: DrainPlace): Promise<Result> {
  const wasDrained = await redisDrain(redis, prefix, driver).end();
  const line = wasDrained
    ? `the drain of ${driver} is ended: sutler starts new work again where one of its ingests leads`
    : `${driver} was not drained; nothing was changed`;
  return { status: 0, lines: [line], json: { driver, isDrained: false, wasDrained } };
}

async function drain(means: DrainMeans, place: DrainPlace): Promise<Result> {
  const { flags, stopping } = means.context;
  await beginDrain(place);
  if (flags.wait) await waitUntilDrained(means, place, signalWithin(stopping, flags.waitLimitMs));
  const { driver } = place;
  const state = await readDrainState(place);
  return {
    status: state.records.length === 0 ? 0 : 1,
    lines: describeDrain(driver, state, flags.wait),
    json: { driver, isDrained: true, ...state },
  };
}

function beginDrain({ redis, prefix, driver }: DrainPlace): Promise<void> {
  const { by, atMs } = noteOf('');
  return redisDrain(redis, prefix, driver).begin({ by, atMs });
}

const POLL_MS = 1_000;

/** Prints a line whenever the number of open records changes. */
async function waitUntilDrained(
  { say }: DrainMeans,
  place: DrainPlace,
  limit: AbortSignal,
): Promise<void> {
  const store = redisDrain(place.redis, place.prefix, place.driver);
  let shown: number | undefined;
  while (!limit.aborted) {
    const { open, isDrained } = await store.read();
    // Redis was emptied meanwhile, or somebody ended the drain.
    if (!isDrained) await beginDrain(place);
    if (open !== shown) say(describeProgress(open, systemClock.nowMs()));
    shown = open;
    if (open === 0 && isDrained) return;
    await systemClock.sleep(POLL_MS, limit);
  }
}

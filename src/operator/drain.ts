import { userInfo } from 'node:os';
import { drainOf } from '../election/lease-view.ts';
import { type Cause, driverCause } from '../explain/causes.ts';
import { readDriverState } from '../explain/driver-state.ts';
import { describeCreation, type OpenCreation, readOpenCreations } from '../hints/open-creations.ts';
import type { JournalPlace } from '../journal/list-journal.ts';
import type { KubeClient } from '../kube/client.ts';
import { DRAIN } from '../kube/keys.ts';
import { isAlreadyExists, isConflict } from '../kube/kube-error.ts';
import type { Lease } from '../kube/objects.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import { activeJobIds } from '../queue/queues.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { systemClock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { counted } from '../runtime/printable.ts';
import { commandMain, type Means, type Result } from './command.ts';
import { drain } from './flags.ts';
import { chooseDriver, journalPlace } from './installation.ts';

/** Sets or removes the annotation of the driver's Lease that drains sutler for that driver. */
export const main = commandMain(drain, run);

/** Workers see the annotation within this time; before that they may begin something. */
const POLL_MS = 1_000;

async function run({ context, openRedis, openKube }: Means<typeof drain.flags>): Promise<Result> {
  const { flags, stopping } = context;
  if (flags.undo && flags.wait) throw new UsageError('--undo and --wait: give one of them');
  const kube = await openKube();
  const redis = await openRedis();
  const driver = await chooseDriver(redis, flags.redisPrefix, flags.driverName);
  const place = { redis, prefix: flags.redisPrefix, driver };
  const journal = await journalPlace(context, redis, driver);
  const wasDrained = await annotate(kube, journal, flags.undo ? undefined : drainText());
  if (flags.undo) {
    const json = { driver, isDrained: false, wasDrained };
    return { status: 0, lines: [describeUndo(driver, wasDrained)], json };
  }
  let state: DrainState;
  do {
    await systemClock.sleep(POLL_MS, stopping);
    state = await readDrainState(kube, place, journal);
  } while (flags.wait && !isFinished(state) && !stopping.aborted);
  return {
    status: isFinished(state) ? 0 : 1,
    lines: describeDrain(state),
    json: { isDrained: true, ...state },
  };
}

function drainText(): string {
  const at = new Date(systemClock.nowMs()).toISOString();
  return JSON.stringify({ by: userInfo().username, at });
}

function describeUndo(driver: string, wasDrained: boolean): string {
  return wasDrained
    ? `the drain of ${driver} is ended: sutler begins new work again, if one of its ingests leads`
    : `${driver} was not drained; nothing was changed`;
}

/** Sets the annotation of the driver's Lease, or removes it. Does not change an existing drain.
 * @returns whether it was set before */
async function annotate(
  kube: KubeClient,
  place: JournalPlace,
  text: string | undefined,
): Promise<boolean> {
  const { namespace, lease: name } = place;
  const lease = await kube.get<Lease>(leases, { namespace, name });
  const { [DRAIN]: _, ...others } = lease?.metadata.annotations ?? {};
  const isSet = drainOf(lease?.metadata.annotations) !== undefined;
  if (isSet === (text !== undefined)) return isSet;
  const annotations = text === undefined ? others : { ...others, [DRAIN]: text };
  try {
    if (lease === undefined)
      await kube.create(leases, namespace, {
        apiVersion: apiVersionOf(leases),
        kind: leases.kind,
        metadata: { namespace, name, annotations },
        spec: {},
      });
    else {
      const metadata = { ...lease.metadata, annotations };
      await kube.update(leases, { namespace, name }, { ...lease, metadata });
    }
    return isSet;
  } catch (error) {
    // The Lease's holder writes it every few seconds.
    if (isConflict(error) || isAlreadyExists(error)) return annotate(kube, place, text);
    throw error;
  }
}

/** The progress of a drain. */
interface DrainState {
  readonly driver: string;
  /** Why sutler does not finish what it has begun; undefined if it does. */
  readonly cause: Cause | undefined;
  /** The claims in the journal for which a call was begun. */
  readonly creations: readonly OpenCreation[];
  /** Number of deletions whose run is under way. */
  readonly deletions: number;
}

async function readDrainState(
  kube: KubeClient,
  place: RedisPlace,
  journal: JournalPlace,
): Promise<DrainState> {
  const state = await readDriverState(place);
  const open = await readOpenCreations(kube, journal, place, systemClock.nowMs());
  return {
    driver: place.driver,
    cause: driverCause({ ...state, drain: undefined }),
    creations: open.filter(({ isBegun }) => isBegun),
    deletions: (await activeJobIds(place, 'volume')).length,
  };
}

function isFinished({ creations, deletions }: DrainState): boolean {
  return creations.length === 0 && deletions === 0;
}

/** Describes a drain: what is left, or what to do next. */
function describeDrain(state: DrainState): readonly string[] {
  const { driver, cause, creations, deletions } = state;
  const lines = [`${driver} is drained: sutler finishes what it has begun, and begins nothing new`];
  if (cause !== undefined) lines.push(`${cause.sentence}; ${cause.actor}: ${cause.step}`);
  if (isFinished(state))
    return [
      ...lines,
      'nothing that was begun is left; sutler can be removed: stop its ingest, which releases ' +
        'the Lease at once, then start external-provisioner',
      `to continue with sutler: sutler drain --driver-name=${driver} --undo`,
    ];
  return [
    ...lines,
    `${counted(creations.length, 'creation')} and ${counted(deletions, 'deletion')} are not ` +
      "finished; sutler can't be removed yet:",
    ...creations.map((each) => `  ${describeCreation(each)}`),
    'wait for them with --wait; drop one that can never end with sutler forget UID',
  ];
}

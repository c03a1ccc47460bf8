import { userInfo } from 'node:os';
import { drainOf } from '../election/lease-view.ts';
import { CAUSES } from '../explain/causes.ts';
import { type DriverState, readDriverState, workersOf } from '../explain/driver-state.ts';
import { describeCreation, type OpenCreation, readOpenCreations } from '../hints/open-creations.ts';
import type { JournalPlace } from '../journal/list-journal.ts';
import type { KubeClient } from '../kube/client.ts';
import { DRAIN } from '../kube/keys.ts';
import { KubeError } from '../kube/kube-error.ts';
import type { Lease } from '../kube/objects.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import { queueName } from '../queue/queue-keys.ts';
import { countActive, countJobs } from '../queue/queues.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { signalWithin, systemClock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { counted } from '../runtime/printable.ts';
import { chooseDriver, type Means, type Result, commandMain } from './command.ts';
import { drain as command } from './flags.ts';
import { journalPlace } from './journal-place.ts';

/** Drains sutler for one driver, or ends that: an annotation of the driver's Lease. */
export const main = commandMain({ name: 'drain', ...command }, run);

async function run(means: Means<typeof command.flags>): Promise<Result> {
  const { context, openRedis, openKube, say } = means;
  const { flags, stopping } = context;
  if (flags.undo && flags.wait) throw new UsageError('--undo and --wait: give one of them');
  const kube = await openKube(flags);
  const redis = await openRedis();
  const driver = await chooseDriver(redis, flags.redisPrefix, flags.driverName);
  const place = { redis, prefix: flags.redisPrefix, driver };
  const journal = await journalPlace(context, redis, driver);
  const lease = { namespace: journal.namespace, name: journal.lease };
  if (flags.undo) return undo(kube, lease, driver);
  await annotate(kube, lease, drainText());
  if (flags.wait)
    await waitUntilDrained(
      { kube, place, journal },
      signalWithin(stopping, flags.waitLimitMs),
      say,
    );
  const state = await readDrainState({ kube, place, journal });
  return {
    status: isDrained(state) ? 0 : 1,
    lines: describeDrain(driver, state, flags.wait),
    json: { isDrained: true, ...state },
  };
}

interface LeaseRef {
  readonly namespace: string;
  readonly name: string;
}

function drainText(): string {
  const at = new Date(systemClock.nowMs()).toISOString();
  return JSON.stringify({ by: userInfo().username, at });
}

async function undo(kube: KubeClient, lease: LeaseRef, driver: string): Promise<Result> {
  const wasDrained = await annotate(kube, lease, undefined);
  const line = wasDrained
    ? `the drain of ${driver} is ended: sutler begins new work again where one of its ingests leads`
    : `${driver} was not drained; nothing was changed`;
  return { status: 0, lines: [line], json: { driver, isDrained: false, wasDrained } };
}

const MAX_TRIES = 10;

/** Sets the annotation of the driver's Lease, or removes it. A drain that is set already stays as
 * it is.
 * @returns whether it was set before */
async function annotate(
  kube: KubeClient,
  { namespace, name }: LeaseRef,
  text: string | undefined,
): Promise<boolean> {
  for (let tries = 1; ; tries += 1)
    try {
      const lease = await kube.get<Lease>(leases, { namespace, name });
      const isSet = drainOf(lease?.metadata.annotations) !== undefined;
      if (isSet === (text !== undefined)) return isSet;
      const { [DRAIN]: _, ...annotations } = lease?.metadata.annotations ?? {};
      const wanted = text === undefined ? annotations : { ...annotations, [DRAIN]: text };
      if (lease === undefined)
        await kube.create(leases, namespace, {
          apiVersion: apiVersionOf(leases),
          kind: leases.kind,
          metadata: { namespace, name, annotations: wanted },
          spec: {},
        });
      else {
        const metadata = { ...lease.metadata, annotations: wanted };
        await kube.update(leases, { namespace, name }, { ...lease, metadata });
      }
      return isSet;
    } catch (error) {
      // Its holder writes it every few seconds.
      if (!(error instanceof KubeError) || error.code !== 409 || tries === MAX_TRIES) throw error;
    }
}

/** How far a drain is. */
export interface DrainState extends Pick<
  DriverState,
  'driver' | 'processes' | 'otherProvisioner' | 'isConfirmed'
> {
  /** The claims in the journal for which a call was begun. */
  readonly creations: readonly OpenCreation[];
  /** Runs under way of deletions. */
  readonly deletions: number;
  /** Keys that have a job: what this installation has not done yet. */
  readonly keys: { readonly claims: number; readonly volumes: number };
}

interface DrainPlaces {
  readonly kube: KubeClient;
  readonly place: RedisPlace;
  readonly journal: JournalPlace;
}

/** Reads all of it. Rejects while Redis or the API server can't be reached. */
export async function readDrainState({ kube, place, journal }: DrainPlaces): Promise<DrainState> {
  const { redis, prefix, driver } = place;
  const { processes, otherProvisioner, isConfirmed } = await readDriverState(place);
  const open = await readOpenCreations(kube, journal, place, systemClock.nowMs());
  const queueOf = (kind: 'claim' | 'volume') => ({ prefix, queue: queueName(kind, driver) });
  return {
    creations: open.filter(({ isBegun }) => isBegun),
    deletions: await countActive(redis, queueOf('volume')),
    keys: {
      claims: await countJobs(redis, queueOf('claim')),
      volumes: await countJobs(redis, queueOf('volume')),
    },
    otherProvisioner,
    isConfirmed,
    driver,
    processes,
  };
}

function isDrained({ creations, deletions }: DrainState): boolean {
  return creations.length === 0 && deletions === 0;
}

const POLL_MS = 1_000;

/** Prints a line whenever the number of what is left changes. */
async function waitUntilDrained(
  places: DrainPlaces,
  limit: AbortSignal,
  say: (line: string) => void,
): Promise<void> {
  let shown: number | undefined;
  // What workers have taken before they saw the annotation has begun by then.
  await systemClock.sleep(POLL_MS, limit);
  while (!limit.aborted) {
    const state = await readDrainState(places);
    const left = state.creations.length + state.deletions;
    if (left !== shown) say(describeProgress(left, systemClock.nowMs()));
    shown = left;
    if (left === 0) return;
    await systemClock.sleep(POLL_MS, limit);
  }
}

/** Claims of which each has a line. */
const SHOWN = 100;

/** A line for each change of the number of what was begun and is not finished. */
export function describeProgress(left: number, nowMs: number): string {
  return `${new Date(nowMs).toISOString()} ${left} claims and volumes are not finished yet`;
}

/** What a drain has come to: what is left, or what to do next.
 * @param hasWaited  with --wait */
export function describeDrain(
  driver: string,
  state: DrainState,
  hasWaited: boolean,
): readonly string[] {
  const { otherProvisioner, isConfirmed, creations, deletions } = state;
  const lines = [`${driver} is drained: sutler finishes what it has begun, and begins nothing new`];
  if (otherProvisioner !== undefined) lines.push(`${otherProvisioner} holds the driver's Lease`);
  if (isDrained(state)) return [...lines, ...describeEnd(driver, state)];
  if (!isConfirmed)
    lines.push(`no ingest of sutler has looked at the claims: ${CAUSES.NoLeader[1]}`);
  if (workersOf(state).length === 0)
    lines.push(`no worker was seen: ${CAUSES.NoWorker[1]}; it finishes what was begun`);
  const more = creations.length - SHOWN;
  return [
    ...lines,
    `${counted(creations.length, 'creation')} and ${counted(deletions, 'deletion')} are not finished; ` +
      "sutler can't be taken out yet:",
    ...creations.slice(0, SHOWN).map((each) => `  ${describeCreation(each)}`),
    ...(more > 0 ? [`  and ${more} more`] : []),
    (hasWaited ? '' : 'run this again with --wait, or ') +
      'drop what can never end with sutler forget UID',
  ];
}

function describeEnd(driver: string, { otherProvisioner, keys }: DrainState): readonly string[] {
  const next =
    otherProvisioner === undefined
      ? 'stop its ingest, which releases the Lease at once, then start external-provisioner'
      : 'stop its processes';
  return [
    `nothing that was begun is left; sutler can be taken out: ${next}`,
    `${counted(keys.claims, 'claim')} and ${counted(keys.volumes, 'volume')} wait here for new work; ` +
      "they are external-provisioner's as soon as it leads",
    `to go on with sutler in its place: sutler drain --driver-name=${driver} --undo`,
  ];
}

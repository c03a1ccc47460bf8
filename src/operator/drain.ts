import { type DriverState, whyNoWorker } from '../explain/driver-state.ts';
import { readHeartbeat } from '../queue/heartbeat.ts';
import { queueName } from '../queue/queue-keys.ts';
import { countJobs } from '../queue/queues.ts';
import { readStatus } from '../queue/status.ts';
import { explainForOperator } from '../records/forget.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { type OpenRecord, openRecords } from '../records/open-records.ts';
import { redisDrain } from '../records/provisioning-pause.ts';
import { signalWithin, systemClock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { chooseDriver, type Means, noteOf, type Result, commandMain } from './command.ts';
import { drain as command } from './flags.ts';

/** Drains sutler for one driver, or ends that. */
export const main = commandMain({ name: 'drain', ...command }, run);

async function run({ context, openRedis, say }: Means<typeof command.flags>): Promise<Result> {
  const { flags, stopping } = context;
  if (flags.undo && flags.wait) throw new UsageError('--undo and --wait: give one of them');
  const redis = await openRedis();
  const prefix = flags.redisPrefix;
  const driver = await chooseDriver(redis, prefix, flags.driverName);
  const place = { redis, prefix, driver };
  if (flags.undo) return undo(place);
  await beginDrain(place);
  if (flags.wait) await waitUntilDrained(place, signalWithin(stopping, flags.waitLimitMs), say);
  const state = await readDrainState(place);
  return {
    status: state.records.length === 0 ? 0 : 1,
    lines: describeDrain(driver, state, flags.wait),
    json: { driver, isDrained: true, ...state },
  };
}

async function undo({ redis, prefix, driver }: RedisPlace): Promise<Result> {
  const wasDrained = await redisDrain(redis, prefix, driver).end();
  const line = wasDrained
    ? `the drain of ${driver} is ended: sutler starts new work again where one of its ingests leads`
    : `${driver} was not drained; nothing was changed`;
  return { status: 0, lines: [line], json: { driver, isDrained: false, wasDrained } };
}

function beginDrain({ redis, prefix, driver }: RedisPlace): Promise<void> {
  const { by, atMs } = noteOf('');
  return redisDrain(redis, prefix, driver).begin({ by, atMs });
}

const POLL_MS = 1_000;

/** Prints a line whenever the number of open records changes. */
async function waitUntilDrained(
  place: RedisPlace,
  limit: AbortSignal,
  say: (line: string) => void,
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

/** How far a drain is. */
export interface DrainState extends Pick<
  DriverState,
  'otherProvisioner' | 'isConfirmed' | 'workerAgeMs'
> {
  /** Suspects first. `reason`: how the last run of its key ended; undefined where none has, or it
   * ended well. */
  readonly records: readonly (OpenRecord & { readonly reason: string | undefined })[];
  /** Keys that have a job: what this installation has not done yet. */
  readonly keys: { readonly claims: number; readonly volumes: number };
}

/** Reads all of it. Rejects while Redis can't be reached. */
export async function readDrainState({ redis, prefix, driver }: RedisPlace): Promise<DrainState> {
  const { otherProvisioner, isConfirmed } = await redisDrain(redis, prefix, driver).read();
  const records = [];
  for (const record of await openRecords(redis, prefix, driver)) {
    const status = await readStatus(redis, { prefix, driver, key: record.job });
    records.push({ ...record, reason: status?.reason });
  }
  const queueOf = (kind: 'claim' | 'volume') => ({ prefix, queue: queueName(kind, driver) });
  return {
    records,
    keys: {
      claims: await countJobs(redis, queueOf('claim')),
      volumes: await countJobs(redis, queueOf('volume')),
    },
    otherProvisioner,
    isConfirmed,
    workerAgeMs: await readHeartbeat(redis, queueOf('claim')),
  };
}

/** Records of which each has a line. */
const SHOWN = 100;

/** A line for each change of the number of open records. */
export function describeProgress(open: number, nowMs: number): string {
  return `${new Date(nowMs).toISOString()} ${open} open volume records`;
}

/** What a drain has come to: what is open and what each record waits for, or what to do next.
 * @param hasWaited  with --wait */
export function describeDrain(
  driver: string,
  state: DrainState,
  hasWaited: boolean,
): readonly string[] {
  const { otherProvisioner, isConfirmed, records } = state;
  const lines = [
    `${driver} is drained: sutler finishes open volume records and starts nothing new`,
  ];
  if (otherProvisioner !== undefined)
    lines.push(`${otherProvisioner} holds the driver's Lease, or was the last that did`);
  if (records.length > 0 && !isConfirmed)
    lines.push('no ingest of sutler has confirmed the data of Redis: start one, see its /readyz');
  if (records.length === 0) return [...lines, ...describeEnd(driver, state)];
  const noWorker = whyNoWorker(state);
  if (noWorker !== undefined) lines.push(`${noWorker}: start jobs, which finishes open records`);
  return [...lines, ...describeRecords(driver, state, hasWaited)];
}

function describeRecords(
  driver: string,
  { records }: DrainState,
  hasWaited: boolean,
): readonly string[] {
  const count = (state: string): string =>
    `${records.filter((record) => record.state === state).length} ${state}`;
  const counts = ['suspect', 'creating', 'deleting'].map(count).join(', ');
  const more = records.length - SHOWN;
  return [
    `${records.length} volume records are open (${counts}); sutler can't be taken out yet:`,
    ...records.slice(0, SHOWN).map((record) => describeRecord(driver, record)),
    ...(more > 0 ? [`  and ${more} more`] : []),
    (hasWaited ? '' : 'run this again with --wait, or ') +
      'drop what can never end with sutler forget UID',
  ];
}

function describeRecord(driver: string, record: DrainState['records'][number]): string {
  const { state, object, id, reason } = record;
  const last = reason === undefined ? '' : `; last run: ${reason}`;
  return `  ${state}  ${object}  ${id}  ${waitOf(driver, record)}${last}`;
}

function waitOf(driver: string, record: OpenRecord): string {
  const { id, state, ambiguous, handle, lastCode, ownedForMs, callEndMs } = record;
  const after = lastCode === '' ? '' : ` after ${lastCode}`;
  if (ownedForMs > 0) return `a run has it, for ${Math.ceil(ownedForMs / 1000)} s at most`;
  const help = explainForOperator(id, driver, lastCode);
  if (help !== undefined) return help;
  if (state === 'deleting') return `its DeleteVolume is sent again${after}`;
  if (state === 'suspect')
    return (
      `the driver refused (${lastCode}), but a call of before may still create the volume: its ` +
      `CreateVolume is sent again until --settle-time after ${new Date(callEndMs).toISOString()}`
    );
  if (handle !== undefined) return 'its volume exists, and its PersistentVolume is written next';
  return `its CreateVolume is sent again${after}${ambiguous ? ', since the end of a call is unknown' : ''}`;
}

function describeEnd(driver: string, { otherProvisioner, keys }: DrainState): readonly string[] {
  const next =
    otherProvisioner === undefined
      ? 'stop its ingest, which releases the Lease at once, then start external-provisioner'
      : 'stop its processes';
  return [
    `no volume record is open; sutler can be taken out: ${next}`,
    `${keys.claims} claims and ${keys.volumes} volumes wait here for new work; they are ` +
      "external-provisioner's as soon as it leads",
    `to go on with sutler in its place: sutler drain --driver-name=${driver} --undo`,
  ];
}

import { JOB_KINDS, keyId, workId } from '../queue/contract.ts';
import { showDoubts } from '../queue/run.ts';
import { queueName } from '../queue/queue-keys.ts';
import { activeJobIds, readJob } from '../queue/queues.ts';
import { readStatus, readStatuses } from '../queue/status.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { age, counted, isoTime } from '../runtime/printable.ts';
import { type Cause, driverCause, statusCause } from './causes.ts';
import { type DriverState, leaderOf, readDriverState, workersOf } from './driver-state.ts';
import { explainEntry, type Explanation } from './explain.ts';
import { groupFaults } from './fault.ts';
import { type PendingEntry, readPending } from './pending-index.ts';

/** The state of a driver and everything that is pending for it. */
export interface DriverReport {
  readonly state: DriverState;
  /** The cause of all its claims, if there is one; see `prevailing`. */
  readonly cause: Cause | undefined;
  readonly isFine: boolean;
  /** Failed checks and notes of the processes of the installation. */
  readonly troubles: readonly string[];
  /** The oldest first. */
  readonly pending: readonly Explanation[];
}

/** Explains everything that is pending for a driver, and sums it up. Rejects while Redis can't be
 * reached.
 * @param entries  what is pending; without it, the entries in Redis */
export async function reportDriver(
  place: RedisPlace,
  entries?: readonly PendingEntry[],
): Promise<DriverReport> {
  const due = (entries ?? (await readPending(place))).toSorted((a, b) => a.sinceMs - b.sinceMs);
  const uids = due.map(({ key }) => key.uid);
  const [state, statuses, running] = await Promise.all([
    readDriverState(place),
    readStatuses(place.redis, place, uids),
    due.length === 0 ? NOTHING_RUNS : readRunning(place),
  ]);
  const ends = [...statuses.values()].map(statusCause);
  const cause = driverCause(state) ?? ends.find(({ name }) => name === 'Unreachable');
  const pending = due.map((entry) => {
    const status = statuses.get(entry.key.uid);
    const job = { isActive: running.has(keyId(entry.key)), delayMs: undefined };
    return explainEntry(entry, { state, status, job, ofAll: cause });
  });
  const troubles = troublesOf(state.processes);
  const isFine = (cause?.isFine ?? true) && pending.every((each) => each.cause.isFine);
  return { state, cause, isFine, troubles, pending };
}

/** Failed checks and notes of processes, a line each. */
export function troublesOf(processes: DriverState['processes']): readonly string[] {
  return processes.flatMap(({ process, instance, lines }) =>
    lines.map((line) => `${process} ${instance}: ${line}`),
  );
}

const NOTHING_RUNS: ReadonlySet<string> = new Set();

/** The claims and volumes with an active job, by keyId. */
async function readRunning(place: RedisPlace): Promise<ReadonlySet<string>> {
  const found = JOB_KINDS.map(async (kind) => {
    const ids = await activeJobIds(place, kind);
    return ids.map((uid) => keyId({ kind, uid }));
  });
  return new Set((await Promise.all(found)).flat());
}

/** Explains one object from Redis' data. Rejects while Redis can't be reached. */
export async function explainOne(
  place: RedisPlace,
  entry: PendingEntry,
  nowMs: number,
): Promise<Explanation> {
  const { redis, prefix, driver } = place;
  const { key } = entry;
  const queue = queueName(key.kind, driver);
  const [{ state, cause }, status, job, [doubtMs]] = await Promise.all([
    reportDriver(place),
    readStatus(redis, { prefix, driver, key }),
    readJob(place, key),
    showDoubts(place, queue, [workId(key)]),
  ]);
  const inDoubtUntilMs = doubtMs !== undefined && doubtMs > 0 ? nowMs + doubtMs : undefined;
  return explainEntry(entry, { state, ofAll: cause, status, job, inDoubtUntilMs });
}

/** Describes the journal for people. */
export function describeJournal(journal: DriverState['journal']): string {
  const { entries, inDoubt = 0, doubtEndsMs = 0, journalTrouble } = journal;
  if (journalTrouble !== undefined) return journalTrouble;
  if (entries === undefined) return 'unknown, because nobody leads';
  const doubt =
    inDoubt === 0 ? '' : `, ${inDoubt} of them in doubt until ${isoTime(doubtEndsMs)} at most`;
  return `${counted(entries, 'claim')}${doubt}`;
}

type Listed = 'claims' | 'volumes';
type Faults = ReturnType<typeof groupFaults<Explanation>>;

/** Groups pending claims and volumes by fault. */
function faultsOf({ pending }: DriverReport): Readonly<Record<Listed, Faults>> {
  return {
    claims: groupFaults(pending.filter(({ kind }) => kind === 'claim')),
    volumes: groupFaults(pending.filter(({ kind }) => kind === 'volume')),
  };
}

/** The report for programs, with the number of claims and volumes for each fault. */
export function countFaults(report: DriverReport) {
  const { claims, volumes } = faultsOf(report);
  const count = (faults: Faults) =>
    faults.map((fault) => ({ count: fault.length, oldest: fault[0] }));
  return { ...report, claims: count(claims), volumes: count(volumes) };
}

/** Faults that are shown without -o wide. */
const SHOWN = 10;

/** Renders the report for people.
 * @param isWide  lists every pending object */
export function renderReport(
  report: DriverReport,
  nowMs: number,
  isWide: boolean,
): readonly string[] {
  const { state, cause, troubles } = report;
  const faults = faultsOf(report);
  const { gateway, journal } = state;
  const workers = workersOf(state).length;
  return [
    `driver ${state.driver}: ${report.isFine ? 'fine' : 'somebody has to act'}`,
    ...(cause === undefined ? [] : [`  ${cause.sentence}; ${cause.actor}: ${cause.step}`]),
    `  leader:  ${leaderOf(state) ?? 'none'}`,
    `  gateway: ${gateway === '' ? 'none is named' : gateway}`,
    `  workers: ${workers === 0 ? 'none' : counted(workers, 'process', 'processes')}`,
    `  journal: ${describeJournal(journal)}`,
    ...troubles.map((line) => `  ${line}`),
    ...(['claims', 'volumes'] as const).flatMap((what) => {
      const shown = faults[what].slice(0, isWide ? undefined : SHOWN);
      const more = faults[what].length - shown.length;
      return [
        ...shown.flatMap((fault) => renderFault(what, fault, nowMs, isWide)),
        ...(more > 0 ? [`  and ${more} more causes of pending ${what}: -o wide`] : []),
      ];
    }),
  ];
}

function renderFault(
  what: Listed,
  fault: Faults[number],
  nowMs: number,
  isWide: boolean,
): readonly string[] {
  const [oldest] = fault;
  const { name, actor, step, sentence } = oldest.cause;
  const ageOf = ({ sinceMs = nowMs }: Explanation): string => age(nowMs - sinceMs);
  const others = fault.length === 1 ? '' : ` and ${fault.length - 1} more`;
  const running = name === 'Running' ? 0 : fault.filter(({ isRunning }) => isRunning).length;
  const now = running === 0 ? '' : `, ${running} of them running`;
  return [
    `  ${counted(fault.length, what.slice(0, -1))} pending: ${name}, ` +
      `the oldest for ${ageOf(oldest)}${now} (${actor}: ${step})`,
    ...(isWide
      ? fault.map((each) => `    ${each.object}  ${ageOf(each)}  ${each.cause.sentence}`)
      : [`    ${oldest.object}${others}: ${sentence}`]),
  ];
}

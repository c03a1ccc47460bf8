import { type Cause, driverCause } from './causes.ts';
import { type DriverState, hasWorker, leaderOf } from './driver-state.ts';
import { age, type Explanation, kindOf } from './explain.ts';

/** Claims or volumes that wait for the same cause. */
export interface CauseCount {
  readonly count: number;
  /** The one that has waited for the longest. */
  readonly oldest: Explanation;
}

/** How a driver fares. */
export interface DriverReport {
  readonly state: DriverState;
  /** Why none of its claims is worked on. */
  readonly cause: Cause | undefined;
  readonly isFine: boolean;
  /** Failed checks and notes of the processes of the installation. */
  readonly troubles: readonly string[];
  readonly claims: readonly CauseCount[];
  readonly volumes: readonly CauseCount[];
  readonly pending: readonly Explanation[];
}

/** Sums up what is pending for a driver.
 * @param pending  the oldest first */
export function reportDriver(
  state: DriverState,
  pending: readonly Explanation[],
  nowMs: number,
): DriverReport {
  const cause = driverCause(state, nowMs);
  const troubles = state.processes.flatMap(({ process, instance, lines }) =>
    lines.map((line) => `${process} ${instance}: ${line}`),
  );
  const isFine = (cause?.isFine ?? true) && pending.every((each) => each.cause.isFine);
  const claims = countCauses(pending.filter((each) => kindOf(each) === 'claim'));
  const volumes = countCauses(pending.filter((each) => kindOf(each) === 'volume'));
  return { state, cause, isFine, troubles, claims, volumes, pending };
}

/** Counts by cause, the largest first. */
export function countCauses(pending: readonly Explanation[]): readonly CauseCount[] {
  const byCause = new Map<string, { count: number; oldest: Explanation }>();
  for (const oldest of pending) {
    const known = byCause.get(oldest.cause.name);
    if (known === undefined) byCause.set(oldest.cause.name, { count: 1, oldest });
    else known.count += 1;
  }
  return [...byCause.values()].sort((a, b) => b.count - a.count);
}

/** Pending objects that are shown without -o wide. */
const SHOWN = 10;

/** For people: a driver after the other. */
export function renderStatus(
  reports: readonly DriverReport[],
  nowMs: number,
  isWide: boolean,
): readonly string[] {
  return reports.flatMap((report) => renderDriver(report, nowMs, isWide));
}

function renderDriver(report: DriverReport, nowMs: number, isWide: boolean): readonly string[] {
  const { state, cause, troubles, pending } = report;
  const { processes, gateway, workerAgeMs, openRecords } = state;
  const jobsProcesses = processes.filter((each) => each.process === 'jobs').length;
  const gone = workerAgeMs === undefined ? 'none was seen' : `none for ${age(workerAgeMs)}`;
  const shown = pending.slice(0, isWide ? pending.length : SHOWN);
  const more = pending.length - shown.length;
  return [
    `driver ${state.driver}: ${report.isFine ? 'fine' : 'somebody has to act'}`,
    ...(cause === undefined ? [] : [`  ${cause.sentence}; ${cause.actor}: ${cause.step}`]),
    `  leader:  ${leaderOf(state) ?? 'none'}`,
    `  gateway: ${gateway === '' ? 'none is named' : gateway}`,
    `  workers: ${hasWorker(state) ? `${jobsProcesses} processes` : gone}`,
    `  records: ${openRecords} open`,
    ...troubles.map((line) => `  ${line}`),
    ...renderCounts('claims', report.claims, nowMs),
    ...renderCounts('volumes', report.volumes, nowMs),
    ...shown.map(
      ({ object, cause: { name, sentence }, sinceMs }) =>
        `    ${object}  ${sinceMs === undefined ? '' : age(nowMs - sinceMs)}  ${name}  ${sentence}`,
    ),
    ...(more > 0 ? [`    and ${more} more: -o wide`] : []),
  ];
}

function renderCounts(
  what: string,
  counts: readonly CauseCount[],
  nowMs: number,
): readonly string[] {
  return counts.map(({ count, oldest: { cause, sinceMs } }) => {
    const oldest = sinceMs === undefined ? '' : `, the oldest for ${age(nowMs - sinceMs)}`;
    return `  ${count} ${what} pending: ${cause.name}${oldest} (${cause.actor}: ${cause.step})`;
  });
}

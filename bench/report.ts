import { percentile } from './percentile.ts';
import type { Costs } from './costs.ts';
import type { JobBytes } from './job-bytes.ts';
import type { SentCommands } from './redis-sample.ts';
import type { Track } from './workload.ts';

/** Times of one phase. */
export interface Times {
  readonly claims: number;
  /** From the first request until the last PV was seen; for deletions, until it was gone. */
  readonly volumesPerSecond: number;
  /** From the first request until the last claim was Bound; NaN for deletions. */
  readonly boundPerSecond: number;
  /** From the API server's answer until a watch showed the PV, or its deletion. */
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** The results of a run. */
export interface Report {
  readonly machine: Readonly<Record<string, string>>;
  readonly settings: Readonly<Record<string, string | number | boolean>>;
  readonly idleRssMiB: Readonly<Record<string, number>>;
  readonly idle?: Times;
  readonly create: Times & { readonly costs: Costs };
  readonly remove: Times & { readonly costs: Costs };
  /** Commands that clients sent for a sample of this many claims. */
  readonly sent: { readonly claims: number; readonly create: SentCommands };
  readonly bytes: JobBytes;
  readonly failures: readonly string[];
}

const SHOWN_COMMANDS = 8;

/** Rates and percentiles of a phase that began at `startedMs`. */
export function timesOf(tracks: readonly Track[], startedMs: number): Times {
  const waits = tracks.map(({ answeredMs = Number.NaN, volumeMs = Number.NaN }) =>
    Math.max(0, volumeMs - answeredMs),
  );
  const perSecond = (ends: readonly (number | undefined)[]): number => {
    const times = ends.filter((end) => end !== undefined);
    return times.length === 0
      ? Number.NaN
      : (tracks.length / (times.reduce((a, b) => Math.max(a, b), startedMs) - startedMs)) * 1000;
  };
  return {
    claims: tracks.length,
    volumesPerSecond: perSecond(tracks.map(({ volumeMs }) => volumeMs)),
    boundPerSecond: perSecond(tracks.map(({ boundMs }) => boundMs)),
    p50Ms: percentile(waits, 0.5),
    p99Ms: percentile(waits, 0.99),
  };
}

/** The report as JSON; maps become objects. */
export function toJson(report: Report): string {
  return JSON.stringify(
    report,
    (_key, value: unknown) => (value instanceof Map ? Object.fromEntries(value) : value),
    2,
  );
}

/** The report as tables. */
export function toText(report: Report): string {
  const { machine, settings, idleRssMiB, idle, create, remove, sent, bytes, failures } = report;
  const lines = [
    Object.entries(machine)
      .map(([what, value]) => `${what} ${value}`)
      .join(', '),
    Object.entries(settings)
      .map(([what, value]) => `${what} ${value}`)
      .join(', '),
    '',
    row('', ['claims', 'PV/s', 'Bound/s', 'p50 ms', 'p99 ms']),
    ...(idle === undefined ? [] : [timesRow('one at a time', idle)]),
    timesRow('burst', create),
    timesRow('deletion', remove),
    '',
    ...costTable('cost of one created volume', create.costs, create.claims),
    ...costTable('cost of one deleted volume', remove.costs, remove.claims),
    `Redis commands sent per created claim (sample of ${sent.claims})`,
    ...rows(sent.create, sent.claims),
    '',
    'bytes in Redis of one claim under way',
    row('  waiting job', [bytes.job]),
    row('  job whose call is at the driver', [bytes.marked]),
    '',
    'RSS when idle, MiB',
    ...Object.entries(idleRssMiB).map(([name, mib]) => row(`  ${name}`, [mib])),
    ...(failures.length === 0 ? [] : ['', 'FAILURES', ...failures.map((line) => `  ${line}`)]),
  ];
  return `${lines.join('\n')}\n`;
}

function costTable(title: string, costs: Costs, claims: number): readonly string[] {
  const requests = [...costs.apiRequests].flatMap(([process, counts]) =>
    [...counts].map(([what, count]) => [`${process}: ${what}`, count] as const),
  );
  return [
    title,
    ' API requests',
    ...rows(new Map(requests), claims),
    ' queue',
    ...rows(costs.queue, claims),
    ' driver calls through the gateway',
    ...rows(costs.driverCalls, claims),
    row(' TCP connections opened on this machine', [costs.connectionsOpened / claims]),
    ' CPU, ms',
    ...rows(costs.cpuMs, claims),
    ` Redis commands executed, including those in scripts; the ${SHOWN_COMMANDS} most frequent`,
    ...rows(costs.redisCommands, claims, SHOWN_COMMANDS),
    row('  all of them', [[...costs.redisCommands.values()].reduce((a, b) => a + b, 0) / claims]),
    '',
  ];
}

/** Counts per claim, highest first. Less than 0.01 per claim (leases, probes) is only in the JSON.
 */
function rows(
  counts: ReadonlyMap<string, number>,
  claims: number,
  limit = Infinity,
): readonly string[] {
  return [...counts]
    .filter(([, count]) => count / claims >= 0.01)
    .sort(([, a], [, b]) => b - a)
    .slice(0, limit)
    .map(([what, count]) => row(`  ${what}`, [count / claims]));
}

function timesRow(name: string, times: Times): string {
  return row(name, [
    times.claims,
    times.volumesPerSecond,
    times.boundPerSecond,
    times.p50Ms,
    times.p99Ms,
  ]);
}

function row(name: string, cells: readonly (string | number)[]): string {
  const columns = cells.map((cell) => formatCell(cell).padStart(10));
  return `${name.padEnd(52)}${columns.join('')}`.trimEnd();
}

function formatCell(cell: string | number): string {
  if (typeof cell === 'string') return cell;
  if (Number.isNaN(cell)) return '-';
  return Number.isInteger(cell) ? String(cell) : cell.toFixed(cell < 100 ? 2 : 1);
}

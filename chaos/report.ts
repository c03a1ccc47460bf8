import { percentile } from '../bench/percentile.ts';
import type { CallEvent } from './call-log.ts';
import type { InjectedFault } from './faults.ts';
import { findRemade, isClean, type Evidence, type Verdict } from './judge.ts';
import { faultKinds, type FaultKind } from './schedule.ts';

/** How often a kind of fault was injected, and the time from its end to the next PV that appeared
 * or disappeared. */
export interface Recovery {
  readonly count: number;
  /** NaN if no PV followed. */
  readonly medianMs: number;
  readonly worstMs: number;
}

/** The results of a run. */
export interface Report {
  readonly settings: Readonly<Record<string, string | number | boolean>>;
  readonly claims: number;
  readonly claimsDeleted: number;
  readonly claimsBound: number;
  readonly volumesMade: number;
  readonly volumesDeleted: number;
  /** Driver calls by method and how they ended. */
  readonly calls: Readonly<Record<string, number>>;
  readonly faults: Readonly<Partial<Record<FaultKind, Recovery>>>;
  /** Volumes created again after their deletion; no violation. */
  readonly remade: readonly string[];
  readonly idleAfterMs: number;
  readonly verdict: Verdict;
  /** Work that was outstanding when --patience ended. */
  readonly unfinished: readonly string[];
  /** Exits that no fault explains, and errors in logs that show a defect. */
  readonly troubles: readonly string[];
  /** Folder with logs, call log and volumes. */
  readonly dir: string;
}

export interface Findings {
  readonly settings: Report['settings'];
  readonly evidence: Evidence;
  readonly verdict: Verdict;
  readonly faults: readonly InjectedFault[];
  readonly progressMs: readonly number[];
  readonly idleAfterMs: number;
  readonly unfinished: readonly string[];
  readonly troubles: readonly string[];
  readonly dir: string;
}

/** Turns the findings of a run into counts. */
export function toReport(findings: Findings): Report {
  const { evidence, verdict, settings, idleAfterMs, unfinished, troubles, dir } = findings;
  const { calls, claims } = evidence;
  const handles = (event: 'made' | 'deleted'): number =>
    new Set(calls.flatMap((each) => (each.event === event ? [each.handle] : []))).size;
  return {
    settings,
    claims: claims.length,
    claimsDeleted: claims.filter(({ deleteSentMs }) => deleteSentMs !== undefined).length,
    claimsBound: claims.filter(({ isBound, deleteSentMs }) => isBound && deleteSentMs === undefined)
      .length,
    volumesMade: handles('made'),
    volumesDeleted: handles('deleted'),
    calls: countCalls(calls),
    faults: recoveries(findings.faults, findings.progressMs),
    remade: findRemade(evidence),
    idleAfterMs,
    verdict,
    unfinished,
    troubles,
    dir,
  };
}

/** Whether the run found nothing wrong. */
export function isPassed({ verdict, unfinished, troubles }: Report): boolean {
  return isClean(verdict) && unfinished.length === 0 && troubles.length === 0;
}

function countCalls(calls: readonly CallEvent[]): Readonly<Record<string, number>> {
  const open = new Map<string, { readonly method: string; isCut: boolean }>();
  const counts: Record<string, number> = {};
  const count = (what: string): void => void (counts[what] = (counts[what] ?? 0) + 1);
  for (const event of calls) {
    if (event.event === 'boot') continue;
    const id = `${event.pid} ${event.call}`;
    if (event.event === 'start') open.set(id, { method: event.method, isCut: false });
    const call = open.get(id);
    if (call === undefined) continue;
    if (event.event === 'cut') call.isCut = true;
    if (event.event !== 'end') continue;
    count(`${call.method} ${event.code}${call.isCut ? ', its caller gone' : ''}`);
    open.delete(id);
  }
  for (const { method } of open.values()) count(`${method} died with the driver`);
  return counts;
}

function recoveries(
  faults: readonly InjectedFault[],
  progressMs: readonly number[],
): Report['faults'] {
  const kinds = [...new Set(faults.map(({ fault }) => fault.kind))].sort();
  return Object.fromEntries(
    kinds.map((kind) => {
      const overs = faults.filter(({ fault }) => fault.kind === kind).map(({ overMs }) => overMs);
      const waits = overs
        .flatMap((overMs) => progressMs.find((atMs) => atMs > overMs) ?? [])
        .map((atMs, i) => atMs - (overs[i] ?? atMs));
      const shares = waits.toSorted((a, b) => a - b);
      return [
        kind,
        { count: overs.length, medianMs: percentile(shares, 0.5), worstMs: percentile(shares, 1) },
      ];
    }),
  );
}

/** The report as JSON. */
export function toJson(report: Report): string {
  return JSON.stringify({ passed: isPassed(report), ...report }, undefined, 2);
}

/** The report as tables. */
export function toText(report: Report): string {
  const { settings, verdict } = report;
  const row = (what: string, count: number | string, note = ''): string =>
    `${what.padEnd(26)}${String(count).padStart(8)}  ${note}`.trimEnd();
  const ms = (value: number): string => (Number.isNaN(value) ? '-' : `${Math.round(value)} ms`);
  const list = (title: string, lines: readonly string[]): readonly string[] =>
    lines.length === 0 ? [] : ['', `${title}:`, ...lines.map((line) => `  ${line}`)];
  const offenders = Object.entries(verdict) as [keyof Verdict, readonly string[]][];
  return [
    Object.entries(settings)
      .map(([what, value]) => `${what} ${value}`)
      .join(', '),
    '',
    row(
      'claims',
      report.claims,
      `${report.claimsDeleted} deleted, ${report.claimsBound} of the others Bound`,
    ),
    row('volumes made', report.volumesMade, `${report.volumesDeleted} deleted`),
    row('volumes made again', report.remade.length, 'after their deletion, and deleted again'),
    row('idle after', ms(report.idleAfterMs)),
    '',
    ...offenders.map(([what, lines]) => row(what, lines.length, MEANING[what])),
    row('unfinished', report.unfinished.length, 'outstanding when --patience ended'),
    row('troubles', report.troubles.length, 'exits that no fault explains, defects in logs'),
    '',
    row('faults', 'count', 'time until the next PV change: median, worst'),
    ...Object.entries(report.faults).map(([kind, { count, medianMs, worstMs }]) =>
      row(
        `  ${kind}`,
        count,
        `${ms(medianMs).padStart(9)} ${ms(worstMs).padStart(9)}   ${faultKinds[kind as FaultKind]}`,
      ),
    ),
    '',
    row('driver calls', ''),
    ...Object.entries(report.calls)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([what, count]) => `  ${String(count).padStart(6)}  ${what}`),
    ...offenders.flatMap(([what, lines]) => list(what, lines)),
    ...list('unfinished', report.unfinished),
    ...list('troubles', report.troubles),
    '',
    isPassed(report)
      ? 'Nothing was lost.'
      : `FAILED with --seed ${settings['seed']}; logs, call log and volumes: ${report.dir}`,
    '',
  ].join('\n');
}

const MEANING: Readonly<Record<keyof Verdict, string>> = {
  leaked: 'volumes that no PV names',
  lost: 'claims that should be Bound and are not',
  twice: 'two volumes for one claim at once',
  wrong: 'DeleteVolume while the claim existed or the PV was not Released',
  missing: 'Bound PVs without a volume',
};

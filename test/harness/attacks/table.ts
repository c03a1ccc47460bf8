import { percentile } from '../../../bench/percentile.ts';
import type { AttackOutcome } from './attacked-door.ts';

const WIDTHS = [18, 44, 9, 6, 6, 7, 7, 7, 12, 16, 5, 7, 7, 0] as const;

/** The first line of a table of attacks. */
export const ROW_HEADS = formatCells([
  'door',
  'attack',
  'strangers',
  'calls',
  'failed',
  'p50',
  'p99',
  'max ms',
  'new: failed',
  'MB before/peak/after',
  'cpu',
  'conns',
  'end',
  'first failure',
]);

/** One line of a table of attacks.
 * @param rssAfter  resident memory when the attack was over; 0 if the gateway has ended */
export function formatRow(outcome: AttackOutcome, rssAfter: number): string {
  const { caller, cpuShare, rssBefore, rssPeak, summary } = outcome;
  const { failures, latenciesMs, newConnectionFailures, newConnectionsMs } = caller;
  const calls = latenciesMs.length + failures.length;
  const newCalls = newConnectionsMs.length + newConnectionFailures.length;
  const newMs = percentile(newConnectionsMs, 1).toFixed(0);
  return formatCells([
    outcome.door,
    outcome.attack,
    String(outcome.strangers),
    String(calls),
    String(failures.length),
    outcome.p50Ms.toFixed(1),
    outcome.p99Ms.toFixed(0),
    outcome.maxMs.toFixed(0),
    `${newConnectionFailures.length}/${newCalls} ${newMs}ms`,
    [rssBefore, rssPeak, rssAfter].map((bytes) => (bytes / 1e6).toFixed(0)).join('/'),
    `${(cpuShare * 100).toFixed(0)}%`,
    String(summary.connections),
    outcome.ending,
    (failures[0] ?? newConnectionFailures[0] ?? '').slice(0, 90),
  ]);
}

function formatCells(cells: readonly string[]): string {
  return cells
    .map((cell, i) => cell.padEnd(WIDTHS[i] ?? 0))
    .join(' ')
    .trimEnd();
}

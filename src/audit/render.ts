import { formatBytes } from '../kube/quantity.ts';
import { escapeControls } from '../runtime/printable.ts';
import type { OpenRecord } from '../records/open-records.ts';
import type { AuditReport } from './audit.ts';

/** The report for scripts; sizes are decimal strings. */
export function renderAuditJson(report: AuditReport): string {
  const toPlain = (_: string, value: unknown): unknown =>
    typeof value === 'bigint' ? value.toString() : value;
  return JSON.stringify(report, toPlain, 2).split('\n').map(escapeControls).join('\n');
}

const ORPHANS_HEAD =
  'Orphaned volumes, which no PersistentVolume names. Nothing was deleted; ' +
  'check each one before you delete it:';

/** The report for people. */
export function renderAuditText(report: AuditReport): string {
  const { driver, volumes, persistentVolumes, openRecords, orphans, waiting } = report;
  const lines = [
    `driver ${driver}: ${volumes} volumes, ${persistentVolumes} PersistentVolumes, ` +
      `${openRecords.length} open records`,
  ];
  if (openRecords.length > 0)
    lines.push('', 'Open records, suspects first:', ...openRecords.map(renderRecord));
  lines.push('', orphans.length === 0 ? 'No orphaned volumes.' : ORPHANS_HEAD);
  for (const { handle, sizeBytes, firstSeenMs } of orphans)
    lines.push(
      `  ${handle}  ${formatBytes(sizeBytes)}  unknown since ${formatTime(firstSeenMs)} or earlier`,
    );
  if (waiting > 0)
    lines.push('', `${waiting} more have no PersistentVolume: audit again after --min-age.`);
  return lines.map(escapeControls).join('\n');
}

function renderRecord(record: OpenRecord): string {
  const { id, object, state, ambiguous, attempts, sinceMs, lastCode } = record;
  const ambiguity = ambiguous ? ', ambiguous' : '';
  const last = lastCode === '' ? '' : `, last ${lastCode}`;
  const since = formatTime(sinceMs);
  return `  ${state}${ambiguity}  ${object}  ${id}  since ${since}, ${attempts} attempts${last}`;
}

function formatTime(ms: number): string {
  return new Date(ms).toISOString();
}

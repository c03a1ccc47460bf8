import { formatBytes } from '../kube/quantity.ts';
import type { AuditReport } from './audit.ts';

/** The report for scripts. */
export function auditJson(report: AuditReport): string {
  const plain = (_: string, value: unknown): unknown =>
    typeof value === 'bigint' ? value.toString() : value;
  return JSON.stringify(report, plain, 2);
}

/** The report for people. */
export function auditText(report: AuditReport): string {
  const time = (ms: number): string => new Date(ms).toISOString();
  const records = report.openRecords.map(
    ({ id, object, state, ambiguous, attempts, sinceMs, lastCode }) =>
      `  ${state}${ambiguous ? ', ambiguous' : ''}  ${object}  ${id}  since ${time(sinceMs)}, ${attempts} attempts${lastCode === '' ? '' : `, last ${lastCode}`}`,
  );
  const orphans = report.orphans.map(
    ({ handle, sizeBytes, firstSeenMs }) =>
      `  ${handle}  ${formatBytes(sizeBytes)}  unknown since ${time(firstSeenMs)} at least`,
  );
  return [
    `driver ${report.driver}: ${report.volumes} volumes, ${report.persistentVolumes} PersistentVolumes, ${report.openRecords.length} open records`,
    ...(records.length === 0 ? [] : ['', 'Open records, suspects first:', ...records]),
    '',
    orphans.length === 0
      ? 'No orphaned volumes.'
      : 'Orphaned volumes, which no PersistentVolume names. Nothing was deleted; look at each before you do:',
    ...orphans,
    ...(report.waiting === 0
      ? []
      : [
          '',
          `${report.waiting} more have no PersistentVolume yet; a later audit tells whether they are under way.`,
        ]),
  ].join('\n');
}

import { formatBytes } from '../kube/quantity.ts';
import { describeCreation } from '../hints/open-creations.ts';
import type { AuditReport, MissingVolume } from './audit.ts';
import type { Unnamed } from './orphans.ts';
import { counted } from '../runtime/printable.ts';

const ORPHANS =
  'Orphaned volumes: no PersistentVolume names them. sutler audit deletes nothing; ' +
  'check each one before you delete it:';
const NOT_NAMED_YET =
  'Volumes without a PersistentVolume, which may still be written. Without it, each counts as ' +
  'orphaned from this time on:';
const MISSING =
  'PersistentVolumes whose volume the driver does not list. If the storage system does not have it ' +
  'either, its data is lost:';

/** The report for people, in lines. */
export function renderAudit(report: AuditReport): readonly string[] {
  const { driver, volumes, persistentVolumes, openCreations, orphans, notNamedYet, missing } =
    report;
  return [
    `driver ${driver}: ${counted(volumes, 'volume')}, ` +
      `${counted(persistentVolumes, 'PersistentVolume')}, ` +
      `${counted(openCreations.length, 'claim')} in the journal`,
    ...list('Claims in the journal:', openCreations.map(describeCreation)),
    ...list(MISSING, missing.map(renderMissing)),
    ...list(ORPHANS, orphans.map(renderOrphan)),
    ...list(NOT_NAMED_YET, notNamedYet.map(renderNotNamedYet)),
    ...(orphans.length > 0 ? [] : ['', 'No orphaned volumes.']),
  ];
}

function list(title: string, rows: readonly string[]): readonly string[] {
  return rows.length === 0 ? [] : ['', title, ...rows.map((row) => `  ${row}`)];
}

function renderMissing({ persistentVolume, handle, claim }: MissingVolume): string {
  return `${persistentVolume}  ${handle}  ${claim === '' ? 'no claim' : `claim ${claim}`}`;
}

function renderOrphan({ handle, sizeBytes, firstSeenMs }: Unnamed): string {
  return `${handle}  ${formatBytes(sizeBytes)}  unknown since ${formatTime(firstSeenMs)} or earlier`;
}

function renderNotNamedYet({ handle, sizeBytes, countsFromMs }: Unnamed): string {
  return `${handle}  ${formatBytes(sizeBytes)}  counts from ${formatTime(countsFromMs)}`;
}

function formatTime(ms: number): string {
  return new Date(ms).toISOString();
}

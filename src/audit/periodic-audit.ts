import { audit, type AuditPorts, type AuditReport } from './audit.ts';
import type { EventRecorder, Regarding } from '../kube/events.ts';
import { timerMs } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { metricsIn, type Registry } from '../runtime/metrics.ts';
import { counted } from '../runtime/printable.ts';

export interface PeriodicAuditOptions {
  readonly ports: AuditPorts;
  readonly events: Pick<EventRecorder, 'record'>;
  /** The object of the events: the driver's Lease, because ingest may write in its namespace. */
  readonly regarding: Regarding;
  readonly intervalMs: number;
  readonly isLeading: () => boolean;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** Audits at each interval while this ingest leads. Reports orphans and missing volumes by metrics
 * and, if their number changes, in the log and by events. */
export function startPeriodicAudit(options: PeriodicAuditOptions) {
  const { ports, isLeading, log } = options;
  let last: AuditReport | undefined;
  const endMetrics = showAudit(options, () => (last = isLeading() ? last : undefined));
  let reported = { orphans: 0, missing: 0 };
  let running: Promise<void> | undefined;
  let isAfterOther = false;

  const auditOnce = async (): Promise<void> => {
    try {
      const report = await audit(ports);
      last = report;
      const found = { orphans: report.orphans.length, missing: report.missing.length };
      if (found.orphans > 0 && found.orphans !== reported.orphans) reportOrphans(options, report);
      if (found.missing > 0 && found.missing !== reported.missing) reportMissing(options, report);
      reported = found;
      if (isAfterOther) logNotNamedYet(options, report);
      isAfterOther = false;
    } catch (error) {
      log.warn({ driver: ports.driver, err: error }, 'the audit failed; the next one tries again');
    }
  };
  const auditIfLeading = (): void => {
    if (isLeading()) running ??= auditOnce().finally(() => (running = undefined));
  };
  const timer = setInterval(auditIfLeading, timerMs(options.intervalMs));
  let second: NodeJS.Timeout | undefined;
  let soonMs = -Infinity;
  return {
    /** Audits now, and again when the volumes that this audit finds unnamed would be orphans.
     * Called after another provisioner led, which may have left volumes behind when it was stopped.
     */
    runSoon(): void {
      if (ports.nowMs() - soonMs < SOON_PAUSE_MS) return;
      soonMs = ports.nowMs();
      log.info({ driver: ports.driver }, 'auditing, because another provisioner may have led');
      isAfterOther = true;
      auditIfLeading();
      clearTimeout(second);
      second = setTimeout(auditIfLeading, timerMs(ports.minAgeMs + SECOND_AUDIT_AFTER_MS));
    },
    stop(): void {
      clearInterval(timer);
      clearTimeout(second);
      for (const end of endMetrics) end();
    },
  };
}

/** The second audit begins --audit-min-age and this time after the first one. */
const SECOND_AUDIT_AFTER_MS = 1_000;
/** Shortest time between two calls of `runSoon`, since two provisioners may take turns. */
const SOON_PAUSE_MS = 60_000;
const MOST_NAMED = 50;

function handlesOf(volumes: readonly { readonly handle: string }[]): readonly string[] {
  return volumes.slice(0, MOST_NAMED).map(({ handle }) => handle);
}

/** Logs at once the volumes that another provisioner may have left behind. */
function logNotNamedYet({ ports, log }: PeriodicAuditOptions, report: AuditReport): void {
  const { driver, minAgeMs } = ports;
  const { notNamedYet, atMs } = report;
  if (notNamedYet.length === 0) return;
  const countFrom = new Date(atMs + minAgeMs).toISOString();
  log.warn(
    { driver, volumes: notNamedYet.length, handles: handlesOf(notNamedYet), countFrom },
    'no PersistentVolume names these volumes yet; from countFrom on they count as orphaned',
  );
}

/** Reports PVs without a volume: their data may be lost. */
function reportMissing(options: PeriodicAuditOptions, { missing }: AuditReport): void {
  const names = missing.slice(0, MOST_NAMED).map(({ persistentVolume }) => persistentVolume);
  options.log.warn(
    { driver: options.ports.driver, missing: missing.length, persistentVolumes: names },
    'the driver does not list the volumes of these PersistentVolumes; sutler audit lists all',
  );
  const message = `the driver does not list the volumes of ${missing.length} PersistentVolumes`;
  tell(options, 'MissingVolumes', `${message}; sutler audit lists them`);
}

function reportOrphans(options: PeriodicAuditOptions, { orphans }: AuditReport): void {
  options.log.warn(
    { driver: options.ports.driver, orphans: orphans.length, handles: handlesOf(orphans) },
    'orphaned volumes found: list them with sutler audit, and delete them in the storage system',
  );
  const message = `no PersistentVolume names ${counted(orphans.length, 'volume')} of this driver`;
  tell(options, 'OrphanedVolumes', `${message}; sutler audit lists them, nothing was deleted`);
}

function tell({ events, regarding }: PeriodicAuditOptions, reason: string, message: string): void {
  events.record({ type: 'Warning', reason, message, regarding });
}

/** Registers the metrics of an audit.
 * @param last  the last one; undefined while this process does not lead
 * @returns functions that remove the metrics */
function showAudit(
  { ports: { driver }, metrics }: PeriodicAuditOptions,
  last: () => AuditReport | undefined,
): readonly (() => void)[] {
  const { sum } = metricsIn(metrics);
  return [
    sum(
      'sutler_orphan_volumes',
      'Volumes of the driver that no PersistentVolume names, by the last audit.',
      () => last()?.orphans.length,
      { driver },
    ),
    sum(
      'sutler_missing_volumes',
      'PersistentVolumes whose volume the driver does not list, by the last audit.',
      () => last()?.missing.length,
      { driver },
    ),
  ];
}

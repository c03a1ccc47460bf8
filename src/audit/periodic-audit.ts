import { audit, type AuditPorts, type AuditReport } from './audit.ts';
import type { EventRecorder, Regarding } from '../kube/events.ts';
import { timerMs } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { metricsIn, type Registry } from '../runtime/metrics.ts';
import { counted } from '../runtime/printable.ts';

export interface PeriodicAuditOptions {
  readonly ports: AuditPorts;
  readonly events: Pick<EventRecorder, 'record'>;
  /** The object of the event: the driver's Lease, in the one namespace where ingest may write. */
  readonly regarding: Regarding;
  readonly intervalMs: number;
  readonly isLeading: () => boolean;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** Audits at each interval while this ingest leads. Reports orphans and missing volumes as metrics
 * and, when their number changes, in the log and as events. */
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
    /** Audits now, and again when a volume that this audit finds unknown counts as an orphan. For
     * when another provisioner led, which may have left volumes behind as it was stopped. */
    runSoon(): void {
      if (ports.nowMs() - soonMs < SOON_PAUSE_MS) return;
      soonMs = ports.nowMs();
      log.info({ driver: ports.driver }, 'another provisioner may have led: auditing');
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

/** How much later than --audit-min-age after the first audit the second one begins. */
const SECOND_AUDIT_AFTER_MS = 1_000;
/** Two provisioners may take turns. */
const SOON_PAUSE_MS = 60_000;
const MOST_NAMED = 50;

function handlesOf(volumes: readonly { readonly handle: string }[]): readonly string[] {
  return volumes.slice(0, MOST_NAMED).map(({ handle }) => handle);
}

/** Says at once what another provisioner seems to have left. */
function logNotNamedYet({ ports, log }: PeriodicAuditOptions, report: AuditReport): void {
  const { driver, minAgeMs } = ports;
  const { notNamedYet, atMs } = report;
  if (notNamedYet.length === 0) return;
  const countFrom = new Date(atMs + minAgeMs).toISOString();
  log.warn(
    { driver, volumes: notNamedYet.length, handles: handlesOf(notNamedYet), countFrom },
    'no PersistentVolume names these volumes yet; they are orphaned if none does by then',
  );
}

/** PVs whose volume is missing: their data may be lost. */
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
    'orphaned volumes found; sutler audit lists them, delete them with the tools of the storage system',
  );
  const message = `no PersistentVolume names ${counted(orphans.length, 'volume')} of this driver`;
  tell(options, 'OrphanedVolumes', `${message}; sutler audit lists them, nothing was deleted`);
}

function tell({ events, regarding }: PeriodicAuditOptions, reason: string, message: string): void {
  events.record({ type: 'Warning', reason, message, regarding });
}

/** Shows an audit as metrics.
 * @param last  the last one; undefined while this process does not lead
 * @returns what ends each */
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

import { audit, type AuditPorts, type AuditReport } from '../audit/audit.ts';
import type { EventRecorder, Regarding } from '../kube/events.ts';
import { timerMs } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { metricsIn, type Registry } from '../runtime/metrics.ts';

export interface PeriodicAuditOptions {
  readonly ports: AuditPorts;
  readonly events: Pick<EventRecorder, 'record'>;
  /** The object of the event: the driver's Lease, in the one namespace where ingest may write. */
  readonly regarding: Regarding;
  /** Pause between two audits. */
  readonly intervalMs: number;
  readonly isLeading: () => boolean;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** Audits at each interval while this ingest leads. Reports orphans as a metric and, when their
 * number changes, in the log and as an event. */
export function startPeriodicAudit(options: PeriodicAuditOptions): { stop(): void } {
  const { ports, isLeading, log } = options;
  const publish = createAuditMetrics(ports.driver, options.metrics);
  let reportedOrphans = 0;
  let running: Promise<void> | undefined;

  const auditOnce = async (): Promise<void> => {
    try {
      const report = await audit(ports);
      publish(report);
      const { length } = report.orphans;
      if (length > 0 && length !== reportedOrphans) reportOrphans(options, length);
      reportedOrphans = length;
    } catch (error) {
      log.warn({ driver: ports.driver, err: error }, 'the audit failed; the next one tries again');
    }
  };
  const timer = setInterval(() => {
    if (isLeading()) running ??= auditOnce().finally(() => (running = undefined));
  }, timerMs(options.intervalMs));
  return { stop: () => clearInterval(timer) };
}

function reportOrphans(
  { ports: { driver }, events, regarding, log }: PeriodicAuditOptions,
  orphans: number,
): void {
  log.warn({ driver, orphans }, 'orphaned volumes found; sutler audit lists them');
  const message =
    `${orphans} volumes of this driver are named by no PersistentVolume; ` +
    'sutler audit lists them, nothing was deleted';
  events.record({ type: 'Warning', reason: 'OrphanedVolumes', message, regarding });
}

function createAuditMetrics(driver: string, metrics: Registry): (report: AuditReport) => void {
  const { gauge } = metricsIn(metrics);
  const orphans = gauge(
    'sutler_orphan_volumes',
    'Volumes of the driver that no PersistentVolume names, by the last audit.',
    ['driver'],
  );
  const openRecords = gauge(
    'sutler_open_records',
    'Open volume records by state, by the last audit.',
    ['driver', 'state'],
  );
  return (report) => {
    orphans.set({ driver }, report.orphans.length);
    for (const state of ['creating', 'suspect', 'deleting']) {
      const records = report.openRecords.filter((record) => record.state === state);
      openRecords.set({ driver, state }, records.length);
    }
  };
}

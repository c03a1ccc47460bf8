import { Gauge } from 'prom-client';
import { audit } from '../audit/audit.ts';
import type { AuditPorts } from '../audit/audit.ts';
import type { EventRecorder, Regarding } from '../kube/events.ts';
import { timerMs } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';

export interface PeriodicAuditOptions {
  readonly ports: AuditPorts;
  readonly events: Pick<EventRecorder, 'record'>;
  /** What the event is about: the driver's Lease, in the one namespace where this process may
   * write. */
  readonly regarding: Regarding;
  /** Pause between two audits. */
  readonly intervalMs: number;
  readonly isLeading: () => boolean;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** Audits while this process leads: orphans show as a metric, a log line, and an event when their
 * number changes. */
export function startPeriodicAudit(options: PeriodicAuditOptions): { stop(): void } {
  const { ports, log } = options;
  const labels = { driver: ports.driver };
  const orphanGauge = new Gauge({
    name: 'sutler_orphan_volumes',
    help: 'Volumes of the driver that no PersistentVolume names, by the last audit.',
    labelNames: ['driver'],
    registers: [options.metrics],
  });
  const openGauge = new Gauge({
    name: 'sutler_open_records',
    help: 'Open volume records by state, by the last audit.',
    labelNames: ['driver', 'state'],
    registers: [options.metrics],
  });
  let reported = 0;
  let running: Promise<void> | undefined;

  const once = async (): Promise<void> => {
    try {
      const report = await audit(ports);
      orphanGauge.set(labels, report.orphans.length);
      for (const state of ['creating', 'suspect', 'deleting']) {
        openGauge.set(
          { ...labels, state },
          report.openRecords.filter((record) => record.state === state).length,
        );
      }
      if (report.orphans.length === reported) return;
      reported = report.orphans.length;
      if (reported === 0) return;
      const message = `${reported} volumes of this driver are named by no PersistentVolume; sutler audit lists them, nothing was deleted`;
      log.warn({ ...labels, orphans: reported }, 'orphaned volumes found; sutler audit lists them');
      options.events.record({
        type: 'Warning',
        reason: 'OrphanedVolumes',
        message,
        regarding: options.regarding,
      });
    } catch (error) {
      log.warn(
        { ...labels, err: error },
        'the audit could not be made; the next one comes in its time',
      );
    }
  };
  const timer = setInterval(() => {
    if (options.isLeading()) running ??= once().finally(() => (running = undefined));
  }, timerMs(options.intervalMs));
  return { stop: () => clearInterval(timer) };
}

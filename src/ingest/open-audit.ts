import type { EventRecorder } from '../kube/events.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import { redisAuditLedger } from '../records/audit-ledger.ts';
import { openRecords } from '../records/open-records.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Base } from './base.ts';
import { startPeriodicAudit } from './periodic-audit.ts';

/** Reports orphans and missing volumes at each interval, if the driver can list its volumes. */
export function openAudit(
  { context, connections, driver: { name, controllerCapabilities }, lease, gate, newWork }: Base,
  events: EventRecorder,
): void {
  const { flags, closers, log, metrics } = context;
  const { kube, gateways, nodeGateways, link } = connections;
  if (flags.auditIntervalMs <= 0 || !controllerCapabilities.has('LIST_VOLUMES')) return;
  const auditing = startPeriodicAudit({
    ports: {
      csi: gateways.anyReplica,
      kube,
      openRecords: () => openRecords(link.redis, flags.redisPrefix, name),
      ledger: redisAuditLedger(link.redis, flags.redisPrefix, name),
      driver: name,
      isReadyNode: nodeGateways && ((node) => nodeGateways.isReady(node)),
      timeoutMs: flags.timeoutMs,
      minAgeMs: flags.auditMinAgeMs,
      nowMs: () => systemClock.nowMs(),
    },
    events,
    regarding: { kind: leases.kind, apiVersion: apiVersionOf(leases), ...lease, uid: '' },
    intervalMs: flags.auditIntervalMs,
    isLeading: () => gate.isAllowing,
    log,
    metrics,
  });
  newWork.afterOther.subscribe(() => auditing.runSoon());
  closers.add('audit', () => auditing.stop());
}

import { audit as runAudit } from '../../audit/audit.ts';
import { auditJson, auditText } from '../../audit/render.ts';
import { openDriver } from '../../gateway-client/open-driver.ts';
import { openKubeClient } from '../../kube/open-client.ts';
import { redisAuditLedger } from '../../records/audit-ledger.ts';
import { openRedis } from '../../redis/connection.ts';
import { openRecords } from '../../records/open-records.ts';
import { systemClock } from '../../runtime/clock.ts';
import { UsageError } from '../../runtime/flags.ts';
import { runProcess, type Invocation, type ProcessContext } from '../../runtime/process.ts';
import { audit } from '../flags.ts';

/** Prints one audit and ends: 0 without orphans, 3 with some. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, {
    name: 'audit',
    summary: audit.summary,
    table: audit.flags,
    start,
  });
}

async function start(p: ProcessContext<typeof audit.flags>): Promise<void> {
  const { flags: f, closers } = p;
  const log = p.log.child({}, { level: 'warn' });
  const kube = await openKubeClient('audit', { ...p, log });
  const { gateways, driver } = await openDriver({ ...p, log });
  const link = openRedis({ url: f.redisUrl, role: 'plain', name: 'sutler-audit', log });
  closers.add('Redis', () => link.close());

  const found = await driver.known(p.stopping);
  if (found === undefined) return;
  if (!found.controllerCapabilities.has('LIST_VOLUMES')) {
    throw new UsageError(
      `driver ${found.name} can't list its volumes (no LIST_VOLUMES capability): there is nothing to compare with`,
    );
  }
  const report = await runAudit({
    csi: gateways.asks,
    kube,
    openRecords: () => openRecords(link.redis, f.redisPrefix, found.name),
    ledger: redisAuditLedger(link.redis, f.redisPrefix, found.name),
    driver: found.name,
    timeoutMs: f.timeoutMs,
    minAgeMs: f.minAgeMs,
    nowMs: () => systemClock.nowMs(),
  });
  p.stdout.write(`${f.json ? auditJson(report) : auditText(report)}\n`);
  p.stop(report.orphans.length === 0 ? 0 : 3);
}

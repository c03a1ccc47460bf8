import { audit as runAudit } from '../../audit/audit.ts';
import { renderAuditJson, renderAuditText } from '../../audit/render.ts';
import { flagsOfDriver } from '../../driver-config/serve-drivers.ts';
import { openDriver } from '../../gateway-client/open-driver.ts';
import { openKubeClient } from '../../kube/open-client.ts';
import { redisAuditLedger } from '../../records/audit-ledger.ts';
import { openRedisAccess } from '../../redis/access.ts';
import { openRedis } from '../../redis/connection.ts';
import { openRecords } from '../../records/open-records.ts';
import { systemClock } from '../../runtime/clock.ts';
import { UsageError } from '../../runtime/flags.ts';
import { runProcess, type Invocation, type ProcessContext } from '../../runtime/process.ts';
import { audit } from '../flags.ts';

/** Runs one audit and prints its report. Exit status 0 without orphans, 3 with orphans. */
export function main(invocation: Invocation): Promise<void> {
  const { summary, flags: table } = audit;
  return runProcess(invocation, { name: 'audit', summary, table, start });
}

async function start(context: ProcessContext<typeof audit.flags>): Promise<void> {
  const { closers, stopping, stdout } = context;
  const flags = await flagsOfDriver(context, context.flags.driverName);
  const log = context.log.child({}, { level: 'warn' });
  const kube = await openKubeClient('audit', { ...context, log });
  const expected = flags.driverConfig === '' ? {} : { name: flags.driverName };
  const { gateways, driver } = await openDriver({ ...context, flags, log }, kube, expected);
  const access = await openRedisAccess({ ...context, log });
  const link = openRedis({
    url: flags.redisUrl,
    access,
    role: 'plain',
    name: 'sutler-audit',
    log,
  });
  closers.add('Redis', () => link.close());

  const driverInfo = await driver.waitUntilKnown(stopping);
  if (driverInfo === undefined) return;
  const { name, controllerCapabilities } = driverInfo;
  if (!controllerCapabilities.has('LIST_VOLUMES'))
    throw new UsageError(
      `driver ${name} can't list its volumes (no LIST_VOLUMES capability), so sutler can't look ` +
        'for orphans; list the volumes with the tools of the storage system',
    );
  const report = await runAudit({
    csi: gateways.anyReplica,
    kube,
    openRecords: () => openRecords(link.redis, flags.redisPrefix, name),
    ledger: redisAuditLedger(link.redis, flags.redisPrefix, name),
    driver: name,
    timeoutMs: flags.timeoutMs,
    minAgeMs: flags.minAgeMs,
    nowMs: () => systemClock.nowMs(),
  });
  stdout.write(`${flags.json ? renderAuditJson(report) : renderAuditText(report)}\n`);
  context.stop(report.orphans.length === 0 ? 0 : 3);
}

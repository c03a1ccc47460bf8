import { audit as runAudit, type AuditReport, redisAuditLedger } from '../audit/audit.ts';
import { renderAudit } from '../audit/render.ts';
import { flagsOfDriver } from '../driver-config/read-config.ts';
import { openDriver } from '../gateway-client/open-driver.ts';
import { VANISHED } from '../explain/causes.ts';
import { readOpenCreations } from '../hints/open-creations.ts';
import { signalWithin, systemClock } from '../runtime/clock.ts';
import type { Invocation } from '../runtime/process.ts';
import { ownNode } from '../election/own-node.ts';
import { commandMain, type Means, Refusal, type Result } from './command.ts';
import { audit } from './flags.ts';
import { journalPlace, servedDrivers } from './installation.ts';

/** Longer than an idle gateway needs to connect to its driver. */
const DRIVER_LIMIT_MS = 20_000;

/** Runs one audit and prints its report. */
export function main(invocation: Invocation, driverLimitMs = DRIVER_LIMIT_MS): Promise<void> {
  return commandMain(audit, (means) => run(means, driverLimitMs))(invocation);
}

async function run(means: Means<typeof audit.flags>, driverLimitMs: number): Promise<Result> {
  const { context } = means;
  const flags = await flagsOfDriver(context, context.flags.driverName);
  const kube = await means.openKube();
  // The command throws this part's errors below, so it need not log them.
  const log = context.log.child({}, { level: 'error' });
  const opened = await openDriver({ ...context, flags, log }, kube, flags.driverName);
  const { gateways, driver } = opened;
  const redis = await means.openRedis();
  const { redisPrefix: prefix } = flags;
  await servedDrivers(redis, prefix, flags.driverName);
  const limit = signalWithin(context.stopping, driverLimitMs);
  const driverInfo = await driver.waitUntilKnown(limit);
  if (driverInfo === undefined)
    throw new Refusal(
      `no driver answered within ${driverLimitMs / 1000} s (${driver.trouble ?? ''}): start the ` +
        'driver, or name its gateway with --gateway',
    );
  const { name, controllerCapabilities } = driverInfo;
  await servedDrivers(redis, prefix, name);
  if (!controllerCapabilities.has('LIST_VOLUMES'))
    throw new Refusal(
      `driver ${name} can't list its volumes (no LIST_VOLUMES capability), so sutler can't compare ` +
        'them; list the volumes with the tools of the storage system',
    );
  const place = { redis, prefix, driver: name };
  const journal = await journalPlace(context, redis, name);
  const report = await runAudit({
    csi: gateways,
    kube,
    openCreations: () => readOpenCreations(kube, journal, place, systemClock.nowMs()),
    ledger: redisAuditLedger(place),
    driver: name,
    ownNode: ownNode(flags, context.env),
    timeoutMs: flags.timeoutMs,
    minAgeMs: flags.minAgeMs,
    nowMs: () => systemClock.nowMs(),
  });
  return { status: statusOf(report), lines: renderAudit(report), json: report };
}

function statusOf({ missing, openCreations, orphans }: AuditReport): 0 | 1 | 3 {
  const needsOperator = openCreations.some(({ reason }) => reason?.startsWith(VANISHED) === true);
  if (missing.length > 0 || needsOperator) return 1;
  return orphans.length > 0 ? 3 : 0;
}

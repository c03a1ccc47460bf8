import {
  instanceName,
  openConnections,
  type Connections,
} from '../connections/open-connections.ts';
import { ownershipMs } from '../records/flags.ts';
import { VolumeRecords } from '../records/volume-record.ts';
import { UsageError } from '../runtime/flags.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { runProcess, type Invocation } from '../runtime/process.ts';
import { parseFeatureGates, type FeatureGates } from '../volumes/feature-gates.ts';
import type { Base, Context } from './base.ts';
import { startCaches, type Caches } from './caches.ts';
import { capacityPlace, openCapacity } from './capacity/open-capacity.ts';
import { flags as table, summary } from './flags.ts';
import { type LostRecords, startLostRecords } from './lost-records.ts';
import { createConsumerStarter, startConsumers } from './open-consumers.ts';
import { openPorts } from './open-ports.ts';
import { traceSteps } from './trace-steps.ts';

/** The jobs process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'jobs', summary, table, start });
}

async function start(context: Context): Promise<void> {
  const { flags, health, log, stopping } = context;
  const gates = checkFlags(flags);
  const place = capacityPlace(context);
  const instance = instanceName(context);
  const redisName = `sutler-records:${instance}`;
  const connections = await openConnections(context, 'jobs', redisName);
  const caches = openCaches(context, connections, gates);
  health.ready('queues', () => 'not started yet');
  health.live('progress', () => undefined);
  context.announce(await openHttpEndpoint(context));
  const driver = await connections.driver.waitUntilKnown(stopping);
  if (driver === undefined) return;
  await caches.waitForSync(driver, stopping);
  if (stopping.aborted) return;

  const base = { context, connections, driver, instance };
  const records = await openRecords(base);
  const lostRecords = openLostRecords(base, records);
  const ports = traceSteps(openPorts(base, { caches, records, gates }));
  await connections.marker.waitUntilOurs(stopping);
  if (stopping.aborted) return;
  const startConsumer = createConsumerStarter(base, lostRecords);
  startConsumers(base, ports, startConsumer);
  if (place !== undefined) openCapacity(base, { place, caches, startConsumer });
  log.info({ driver: driver.name, workers: flags.workerThreads }, 'taking jobs');
}

/** @throws UsageError for flags that can't be used */
function checkFlags(flags: Context['flags']): FeatureGates {
  if (flags.volumeNameUuidLength === 0) {
    throw new UsageError(
      '--volume-name-uuid-length: 0 would give all claims one name; choose -1 or 1 to 32',
    );
  }
  const gates = parseFeatureGates(flags.featureGates);
  if (typeof gates === 'string') throw new UsageError(`--feature-gates: ${gates}`);
  return gates;
}

function openCaches(
  { closers, health, log, metrics }: Context,
  { kube }: Connections,
  gates: FeatureGates,
): Caches {
  const caches = startCaches({ client: kube, log, metrics, gates });
  closers.add('caches', () => caches.stop());
  health.ready('kubernetes', () => caches.trouble);
  return caches;
}

async function openRecords({
  context,
  connections,
  driver,
  instance,
}: Base): Promise<VolumeRecords> {
  const { flags } = context;
  const records = new VolumeRecords({
    redis: connections.link.redis,
    prefix: flags.redisPrefix,
    driver: driver.name,
    ownMs: ownershipMs(flags),
    settleMs: flags.settleTimeMs,
    processName: instance,
  });
  // Only saves the first run a refusal, so Redis need not be there yet.
  await records.learnIncarnation().catch(() => undefined);
  return records;
}

function openLostRecords({ context, connections }: Base, records: VolumeRecords): LostRecords {
  const isRedisOurs = () => connections.marker.isOurs;
  const lostRecords = startLostRecords({ records, isRedisOurs, log: context.log });
  context.closers.add('open records', () => lostRecords.stop());
  connections.link.onReady(() => lostRecords.checkNow());
  return lostRecords;
}

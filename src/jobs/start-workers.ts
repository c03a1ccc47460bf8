import { type CapacityPlace, capacityPlace } from '../capacity/flags.ts';
import { startReconciler } from '../capacity/start-reconciler.ts';
import type { DriverConnections } from '../connections/open-connections.ts';
import type { LeaseFollower } from '../election/lease-follower.ts';
import { ownershipMs } from '../records/flags.ts';
import { startLostRecords } from '../records/lost-records.ts';
import { VolumeRecords } from '../records/volume-record.ts';
import { UsageError } from '../runtime/flags.ts';
import type { PollLoop } from '../runtime/poll-loop.ts';
import { type FeatureGates, parseFeatureGates, retiredGates } from '../volumes/flags.ts';
import { buildDependencies } from './build-dependencies.ts';
import type { DriverCaches } from './caches.ts';
import { createConsumerStarter, startConsumers } from './consumers.ts';
import type { DriverDeps, JobsContext, SharedParts } from './dependencies.ts';
import { followLease } from './follow-lease.ts';

/** What the flags of a driver say, once they are checked. */
export interface CheckedFlags {
  readonly gates: FeatureGates;
  /** Undefined where this process asks the driver for no capacity. */
  readonly place: CapacityPlace | undefined;
}

/** Begins to take the jobs of one driver, as soon as the driver is known. Resolves then, or when
 * the context's signal aborts.
 * @param o.instance  name of this process that no other one has */
export async function startWorkers(
  context: JobsContext,
  connections: DriverConnections,
  o: CheckedFlags & { readonly instance: string; readonly shared: SharedParts },
): Promise<void> {
  const { flags, log, stopping } = context;
  const { gates, place, instance, shared } = o;
  for (const gate of retiredGates(flags.featureGates))
    log.warn(`--feature-gates: ${gate} is accepted and ignored: it is always on; remove it`);
  const isSafe = flags.claimFinalizer || flags.redisWithoutAof;
  context.health.ready('redis-aof', () => (isSafe ? undefined : connections.settings.forgets));
  const driver = await connections.driver.waitUntilKnown(stopping);
  if (driver === undefined) return;
  const caches = openCaches(context, shared.caches.openDriver(driver, gates));
  await caches.waitForSync(stopping);
  if (stopping.aborted) return;

  const deps = { context, connections, shared, driver, instance };
  const lease = shared.softState ?? (await followLease(deps));
  const records = openRecords(deps, lease);
  const lostRecords = openLostRecords(deps, records);
  const dependencies = buildDependencies(deps, { caches, records, gates });
  await connections.marker.waitUntilOurs(stopping);
  if (stopping.aborted) return;
  const startConsumer = createConsumerStarter(deps, lostRecords);
  startConsumers(deps, dependencies, startConsumer);
  if (place !== undefined) {
    startReconciler(context, connections, {
      driver: driver.name,
      ownNode: shared.softState?.node,
      place,
      classOf: caches.classOf,
      topology: caches.topology,
      startConsumer: (process) => startConsumer('capacity', flags.capacityThreads, process),
    });
  }
  log.info({ driver: driver.name, workers: flags.workerThreads }, 'taking jobs');
}

/** Checks that /readyz and /healthz have before their parts are opened. */
export function addFirstChecks(health: JobsContext['health']): void {
  health.ready('kubernetes', () => 'not started yet');
  health.ready('queues', () => 'not started yet');
  health.live('progress', () => undefined);
}

/** @throws UsageError for flags that can't be used, and for a variable that is not set */
export function checkFlags(context: Pick<JobsContext, 'flags' | 'env'>): CheckedFlags {
  const { flags } = context;
  if (flags.volumeNameUuidLength === 0) {
    throw new UsageError(
      '--volume-name-uuid-length: 0 would give all claims one name; choose -1 or 1 to 32',
    );
  }
  const gates = parseFeatureGates(flags.featureGates);
  if (typeof gates === 'string') throw new UsageError(`--feature-gates: ${gates}`);
  return { gates, place: capacityPlace(flags, context.env) };
}

function openCaches({ closers, health }: JobsContext, caches: DriverCaches): DriverCaches {
  closers.add('caches', () => caches.stop());
  health.ready('kubernetes', () => caches.trouble);
  return caches;
}

function openRecords(
  { context, connections, driver, instance, shared }: DriverDeps,
  lease: Pick<LeaseFollower, 'otherHolder'>,
): VolumeRecords {
  const { flags } = context;
  return new VolumeRecords({
    redis: connections.link.redis,
    prefix: flags.redisPrefix,
    driver: driver.name,
    ownMs: ownershipMs(flags),
    settleMs: flags.settleTimeMs,
    processName: instance,
    keys: () => shared.recordKeys?.current,
    otherHolder: () => lease.otherHolder,
    isSoftState: shared.softState !== undefined,
  });
}

function openLostRecords({ context, connections }: DriverDeps, records: VolumeRecords): PollLoop {
  const isRedisOurs = () => connections.marker.isOurs;
  const lostRecords = startLostRecords(records, isRedisOurs, context.log);
  context.closers.add('open records', () => lostRecords.stop());
  context.closers.add(
    'listener',
    connections.link.onReady(() => lostRecords.runNow()),
  );
  return lostRecords;
}

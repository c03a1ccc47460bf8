import type { DriverConnections } from '../connections/open-connections.ts';
import { leaseNamespace } from '../election/flags.ts';
import { leaseName } from '../election/lease.ts';
import { UsageError } from '../runtime/flags.ts';
import { type FeatureGates, parseFeatureGates, retiredGates } from '../volumes/flags.ts';
import { buildDependencies } from './build-dependencies.ts';
import type { DriverCaches } from './caches.ts';
import { startConsumers } from './consumers.ts';
import type { JobsContext, SharedParts } from './dependencies.ts';
import { followLease } from './follow-lease.ts';

/** What the flags of a driver say, once they are checked. */
export interface CheckedFlags {
  readonly gates: FeatureGates;
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
  const { gates, instance, shared } = o;
  for (const gate of retiredGates(flags.featureGates))
    log.warn(`--feature-gates: ${gate} is accepted and ignored: it is always on; remove it`);
  const driver = await connections.driver.waitUntilKnown(stopping);
  if (driver === undefined) return;
  const caches = openCaches(context, shared.caches.openDriver(driver, gates));
  await caches.waitForSync(stopping);
  if (stopping.aborted) return;

  const deps = { context, connections, shared, driver, instance };
  const namespace = await leaseNamespace(flags.leaderElectionNamespace, context.env);
  const { ownLeader } = shared;
  const journal = {
    namespace,
    lease: leaseName(driver.name),
    driver: driver.name,
    node: ownLeader?.node,
  };
  const lease = ownLeader ?? (await followLease(deps, namespace));
  const dependencies = buildDependencies(deps, { caches, gates, lease, journal });
  startConsumers(deps, dependencies);
  connections.leads.add(driver.name);
  context.closers.add('taking jobs', () => connections.leads.delete(driver.name));
  log.info({ driver: driver.name, workers: flags.workerThreads }, 'taking jobs');
}

/** Checks that /readyz and /healthz have before their parts are opened. */
export function addFirstChecks(health: JobsContext['health']): void {
  health.ready('kubernetes', () => 'not started yet');
  health.ready('queues', () => 'not started yet');
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
  return { gates };
}

function openCaches({ closers, health }: JobsContext, caches: DriverCaches): DriverCaches {
  closers.add('caches', () => caches.stop());
  health.ready('kubernetes', () => caches.trouble);
  return caches;
}

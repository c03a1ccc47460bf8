import { capacityNamespace } from '../../capacity/environment.ts';
import { redisHintStore } from '../../capacity/hint-store.ts';
import { ObjectStore } from '../../capacity/object-store.ts';
import { redisReadTimes } from '../../capacity/read-times.ts';
import type { Listeners } from '../../runtime/listeners.ts';
import { systemClock } from '../../runtime/clock.ts';
import { classes } from '../../kube/resources.ts';
import { parseObjectId } from '../../queue/dependency-index.ts';
import { startNodeWatch } from '../../topology/node-watch.ts';
import { managedBy } from '../../volumes/capacity/managed-by.ts';
import type { DriverDeps } from '../driver-deps.ts';
import type { DriverObjects } from '../objects/object-source.ts';
import { capacityMetrics } from './capacity-metrics.ts';
import { CapacityRefresher } from './capacity-refresher.ts';

/** Begins to look after the driver's storage capacity, with --enable-capacity.
 * @param changes  tells of each object that changes
 * @throws UsageError where NAMESPACE is not set */
export function openCapacity(
  base: DriverDeps,
  driverObjects: DriverObjects,
  changes: Listeners<string>,
): void {
  const { context, connections, queue } = base;
  const { flags, env, closers, health, log, metrics, stopping } = context;
  const { kube, link } = connections;
  const { name: driver } = base.driver;
  if (!flags.enableCapacity) return;
  const manager = { driver, managedBy: managedBy() };
  let refresher: CapacityRefresher | undefined;
  const onChange = (): void => refresher?.changed();
  const nodes = startNodeWatch({ client: kube, driver, log, metrics, onChange });
  const objects = new ObjectStore({
    client: kube,
    namespace: capacityNamespace(env),
    manager,
    onChange: (change) => refresher?.objectChanged(change),
    clock: systemClock,
    log,
    metrics,
  });
  closers.add('capacity', async () => {
    await refresher?.stop();
    await Promise.all([objects.stop(), nodes.stop()]);
  });
  health.ready('capacity', () => nodes.trouble ?? objects.trouble);
  const begin = async (): Promise<void> => {
    await objects.open();
    await nodes.waitForSync(stopping).catch(() => undefined);
    if (stopping.aborted) return;
    refresher = new CapacityRefresher({
      manager,
      includesImmediate: flags.capacityForImmediateBinding,
      nodes,
      classes: () => driverObjects.classes(),
      objects,
      hints: redisHintStore(link.redis, flags.redisPrefix, driver),
      readTimes: redisReadTimes(link.redis, flags.redisPrefix, driver),
      queue,
      pollMs: flags.capacityPollIntervalMs,
      metrics: capacityMetrics(metrics, driver),
      clock: systemClock,
      log,
    });
  };
  changes.subscribe((object) => {
    if (parseObjectId(object).resource === classes.plural) refresher?.changed();
  });
  void begin();
}

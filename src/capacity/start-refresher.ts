import type { DriverConnections } from '../connections/open-connections.ts';
import type { DriverContext } from '../driver-config/driver-set.ts';
import type { Class } from '../kube/objects.ts';
import type { redisFlags } from '../redis/flags.ts';
import { systemClock } from '../runtime/clock.ts';
import { startNodeWatch } from '../topology/node-watch.ts';
import { type capacityFlags, capacityNamespace, type capacityPollFlags } from './flags.ts';
import { redisHintStore } from './hints.ts';
import { capacityMetrics } from './metrics.ts';
import { ObjectStore } from './object-store.ts';
import { managedBy } from './objects.ts';
import { CapacityRefresher, type CapacityRefresherOptions } from './refresher.ts';
import { redisReadTimes } from './timing.ts';

/** Begins to look after the driver's storage capacity in ingest, with --enable-capacity.
 * @param o.onClassChange  calls its argument whenever a class has changed
 * @throws UsageError where NAMESPACE is not set */
export function startRefresher(
  context: DriverContext<typeof capacityFlags & typeof capacityPollFlags & typeof redisFlags>,
  { kube, link }: Pick<DriverConnections, 'kube' | 'link'>,
  o: Pick<CapacityRefresherOptions, 'queue'> & {
    readonly driver: string;
    /** The only node whose capacity is published; undefined for all. */
    readonly ownNode?: string | undefined;
    readonly classes: () => Iterable<Class>;
    readonly onClassChange: (listener: () => void) => void;
  },
): void {
  const { flags, env, closers, health, log, metrics, stopping } = context;
  const { driver, ownNode, classes, queue } = o;
  if (!flags.enableCapacity) return;
  const manager = { driver, managedBy: managedBy(ownNode) };
  let refresher: CapacityRefresher | undefined;
  const onChange = (): void => refresher?.changed();
  const nodes = startNodeWatch({ client: kube, driver, ownNode, log, metrics, onChange });
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
      classes,
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
  o.onClassChange(onChange);
  void begin();
}

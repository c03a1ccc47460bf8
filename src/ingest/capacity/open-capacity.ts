import { capacityNamespace } from '../../capacity/environment.ts';
import { redisHintStore } from '../../capacity/hint-store.ts';
import { ObjectStore } from '../../capacity/object-store.ts';
import { redisReadTimes } from '../../capacity/read-times.ts';
import type { Connections } from '../../connections/open-connections.ts';
import type { Listeners } from '../../runtime/listeners.ts';
import { systemClock } from '../../runtime/clock.ts';
import type { ProcessContext } from '../../runtime/process.ts';
import { classes } from '../../kube/resources.ts';
import { parseObjectId } from '../../queue/wait-list.ts';
import type { NodeChange, NodeWatch } from '../../topology/node-watch.ts';
import { managedBy } from '../../volumes/capacity/managed-by.ts';
import type { flags as table } from '../flags.ts';
import type { LeaderGate } from '../leader-gate.ts';
import type { Watcher } from '../watcher.ts';
import { capacityMetrics } from './capacity-metrics.ts';
import { CapacityRefresher } from './capacity-refresher.ts';

type Context = ProcessContext<typeof table>;

interface CapacityParts {
  readonly driver: string;
  readonly gate: LeaderGate;
  readonly watcher: Watcher;
  /** Tells of each claim, class and volume that changes. */
  readonly changes: Listeners<string>;
  /** Starts to watch the nodes. */
  readonly startNodes: (onChange: (change: NodeChange) => void) => NodeWatch;
}

/** Begins to look after the driver's storage capacity, with --enable-capacity.
 * @throws UsageError where NAMESPACE is not set */
export function openCapacity(
  { flags, env, closers, health, log, metrics, stopping }: Context,
  { kube, link }: Connections,
  { driver, gate, watcher, changes, startNodes }: CapacityParts,
): void {
  if (!flags.enableCapacity) return;
  const manager = { driver, managedBy: managedBy() };
  let refresher: CapacityRefresher | undefined;
  const nodes = startNodes(() => refresher?.changed());
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
      classes: () => watcher.classes(),
      objects,
      hints: redisHintStore(link.redis, flags.redisPrefix, driver),
      readTimes: redisReadTimes(link.redis, flags.redisPrefix, driver),
      gate,
      pollMs: flags.capacityPollIntervalMs,
      metrics: capacityMetrics(metrics),
      clock: systemClock,
      log,
    });
  };
  changes.subscribe((object) => {
    if (parseObjectId(object).resource === classes.plural) refresher?.changed();
  });
  void begin();
}

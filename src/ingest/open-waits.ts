import { DependencyIndex } from '../queue/dependency-index.ts';
import { redisReservedCapacity } from '../node-local/reserved-capacity.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Listeners } from '../runtime/listeners.ts';
import { startNodeWatch } from '../topology/node-watch.ts';
import type { DriverDeps } from './driver-deps.ts';
import { DemandWatch } from './dependencies/demand-watch.ts';
import { NodeDemand } from './dependencies/node-demand.ts';
import { NodeLocalVersions } from './dependencies/node-local-versions.ts';
import type { DriverObjects } from './objects/object-source.ts';
import { DependencyWatcher } from './dependencies/dependency-watcher.ts';

/** Promotes parked keys when the object changes that they wait for.
 * @param changes  tells of each object that changes */
export function openWaits(
  base: DriverDeps,
  driverObjects: DriverObjects,
  changes: Listeners<string>,
): void {
  const { context, connections, driver, queue, pause } = base;
  const { flags, closers, log, metrics } = context;
  const demandWatch = openDemandWatch(base, changes);
  const nodeDemand = openNodeDemand(base, changes);
  const nodeLocal = openNodeLocalVersions(base, changes);
  const waitWatch = new DependencyWatcher({
    waits: new DependencyIndex(connections.link.redis, flags.redisPrefix, driver.name),
    versionOf: (object) =>
      driverObjects.versionOf(object) ??
      demandWatch.versionOf(object) ??
      nodeDemand.versionOf(object) ??
      pause.versionOf(object) ??
      nodeLocal?.versionOf(object),
    onWaiting(objects) {
      driverObjects.follow(objects);
      demandWatch.follow(objects);
      nodeDemand.follow(objects);
      nodeLocal?.follow(objects);
    },
    isLeading: () => queue.isAllowing,
    driver: driver.name,
    clock: systemClock,
    log,
    metrics,
  });
  closers.add('wait watch', () => waitWatch.stop());
  changes.subscribe((object) => waitWatch.changed(object));
  pause.allowed.subscribe(() => waitWatch.readNow());
}

function openDemandWatch(
  { context: { flags, closers, log }, connections: { kube } }: DriverDeps,
  changes: Listeners<string>,
): DemandWatch {
  const demandWatch = new DemandWatch({
    client: kube,
    watchSecrets: flags.watchSecrets,
    onChange: (object) => changes.notify(object),
    clock: systemClock,
    log,
  });
  closers.add('watch on demand', () => demandWatch.stop());
  return demandWatch;
}

function openNodeDemand(
  { context: { closers, log, metrics }, connections: { kube }, driver }: DriverDeps,
  changes: Listeners<string>,
): NodeDemand {
  const nodeDemand = new NodeDemand({
    start: (onChange) =>
      startNodeWatch({ client: kube, driver: driver.name, log, metrics, onChange }),
    onChange: (object) => changes.notify(object),
    clock: systemClock,
    log,
  });
  closers.add('watch of nodes', () => nodeDemand.stop());
  return nodeDemand;
}

function openNodeLocalVersions(
  { context: { flags, log }, connections: { nodeGateways, link }, driver }: DriverDeps,
  changes: Listeners<string>,
): NodeLocalVersions | undefined {
  if (nodeGateways === undefined) return undefined;
  const place = { prefix: flags.redisPrefix, driver: driver.name };
  return new NodeLocalVersions({
    gateways: nodeGateways,
    room: redisReservedCapacity(link.redis, place, 0),
    onChange: (object) => changes.notify(object),
    log,
  });
}

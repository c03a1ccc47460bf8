import type { EventRecorder } from '../kube/events.ts';
import { redisSharedHandles } from '../records/shared-handles.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Listeners } from '../runtime/listeners.ts';
import { volumeFailedDelete } from '../volumes/deletion-event.ts';
import { inTreeNameOf } from '../volumes/migration/plugins.ts';
import type { Base } from './base.ts';
import { HandlePublisher } from './handle-publisher.ts';
import { Watcher } from './watcher.ts';

/** Lists and watches; only the leader writes an event for a volume that must not be deleted.
 * @param changes  told of each object that changes */
export function openWatcher(
  base: Base,
  events: EventRecorder,
  changes: Listeners<string>,
): Watcher {
  const { context, connections, driver, gate } = base;
  const { closers, health, log, metrics } = context;
  const watcher: Watcher = new Watcher({
    client: connections.kube,
    driver: { ...driver, inTreeName: inTreeNameOf(driver.name) },
    gate,
    onObject: (object) => changes.notify(object),
    onSharedHandles: () => publisher.changed(),
    onRefused(volume, reason) {
      if (gate.isAllowing) events.record(volumeFailedDelete(volume, reason));
    },
    log,
    metrics,
  });
  closers.add('watcher', () => watcher.stop());
  health.ready('kubernetes', () => watcher.trouble);
  const publisher = openHandlePublisher(base, watcher);
  return watcher;
}

/** Tells the workers which handles several PVs name. */
function openHandlePublisher(
  { context: { flags, closers, log }, connections: { link, marker }, driver }: Base,
  watcher: Watcher,
): HandlePublisher {
  const publisher = new HandlePublisher({
    watcher,
    store: redisSharedHandles(link.redis, flags.redisPrefix, driver.name),
    isRedisOurs: () => marker.isOurs,
    clock: systemClock,
    log,
  });
  closers.add('handle publisher', () => publisher.stop());
  return publisher;
}

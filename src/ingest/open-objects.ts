import type { Connections } from '../connections/open-connections.ts';
import type { EventRecorder } from '../kube/events.ts';
import { redisSharedHandles } from '../records/shared-handles.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Listeners } from '../runtime/listeners.ts';
import { volumeFailedDelete } from '../volumes/deletion-event.ts';
import { inTreeNameOf } from '../volumes/migration/plugins.ts';
import type { Base, Context } from './base.ts';
import { HandlePublisher } from './objects/handle-publisher.ts';
import type { DriverObjects, ObjectSource } from './objects/object-source.ts';
import { WatchedObjects } from './objects/watched-objects.ts';

/** Begins to list and watch claims, classes and volumes. */
export function openObjects(
  { closers, health, log, metrics }: Omit<Context, 'stopping'>,
  { kube }: Connections,
): ObjectSource {
  const source = new WatchedObjects({ client: kube, log, metrics });
  closers.add('objects', () => source.stop());
  health.ready('kubernetes', () => source.trouble);
  return source;
}

/** Begins to serve a driver; only the leader writes an event for a volume that must not be deleted.
 * @param changes  told of each object that changes */
export function openDriverObjects(
  base: Base,
  source: ObjectSource,
  { events, changes }: { readonly events: EventRecorder; readonly changes: Listeners<string> },
): DriverObjects {
  const { context, driver, gate } = base;
  const objects: DriverObjects = source.serve({
    driver: { ...driver, inTreeName: inTreeNameOf(driver.name) },
    gate,
    onObject: (object) => changes.notify(object),
    onSharedHandles: () => publisher.changed(),
    onRefused(volume, reason) {
      if (gate.isAllowing) events.record(volumeFailedDelete(volume, reason));
    },
  });
  context.closers.add('objects of the driver', () => objects.stop());
  const publisher = openHandlePublisher(base, objects);
  return objects;
}

/** Tells the workers which handles several PVs name. */
function openHandlePublisher(
  { context: { flags, closers, log }, connections: { link, marker }, driver }: Base,
  objects: DriverObjects,
): HandlePublisher {
  const publisher = new HandlePublisher({
    objects,
    store: redisSharedHandles(link.redis, flags.redisPrefix, driver.name),
    isRedisOurs: () => marker.isOurs,
    clock: systemClock,
    log,
  });
  closers.add('handle publisher', () => publisher.stop());
  return publisher;
}

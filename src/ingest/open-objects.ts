import type { EventRecorder } from '../kube/events.ts';
import { DependencyIndex } from '../queue/dependency-index.ts';
import { redisSharedHandles } from '../records/shared-handles.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Listeners } from '../runtime/listeners.ts';
import { volumeFailedDelete } from '../volumes/deletion.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import type { DriverDeps } from './driver-deps.ts';
import type { EventSource } from './event-source.ts';
import type { HandleScanner } from './notices/handle-scanner.ts';
import { HandlePublisher } from './objects/handle-publisher.ts';
import type { DriverObjects, ServedDriver } from './objects/object-source.ts';

/** Begins to serve a driver; only the leader writes an event for a volume that must not be deleted.
 * @param changes  told of each object that changes */
export function openDriverObjects(
  base: DriverDeps,
  { source, hintedWatch, scanner }: EventSource,
  { events, changes }: { readonly events: EventRecorder; readonly changes: Listeners<string> },
): DriverObjects {
  const { driver, queue } = base;
  const { closers } = base.context;
  const served: ServedDriver = {
    driver: { ...driver, inTreeName: inTreeNameOf(driver.name) },
    queue,
    onObject: (object) => changes.notify(object),
    onSharedHandles: () => publisher?.changed(),
    onRefused(volume, reason) {
      if (queue.isAllowing) events.record(volumeFailedDelete(volume, reason));
    },
  };
  const objects = source.serve(served);
  closers.add('objects of the driver', () => objects.stop());
  const endHints = hintedWatch?.serve(served, objects);
  if (endHints !== undefined) closers.add('hints of the driver', endHints);
  const publisher = scanner === undefined ? openHandlePublisher(base, objects) : undefined;
  if (scanner !== undefined) openHandleScans(base, scanner);
  return objects;
}

/** Tells the workers which handles several PVs name. */
function openHandlePublisher(
  { context: { flags, closers, log }, connections: { link, marker }, driver }: DriverDeps,
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

/** Tells the workers the same when they ask. */
function openHandleScans(
  { context: { flags, closers }, connections: { link, marker }, driver: { name } }: DriverDeps,
  scanner: HandleScanner,
): void {
  const end = scanner.serve({
    name,
    store: redisSharedHandles(link.redis, flags.redisPrefix, name),
    waits: new DependencyIndex(link.redis, flags.redisPrefix, name),
    isRedisOurs: () => marker.isOurs,
  });
  closers.add('scans for shared handles', end);
}

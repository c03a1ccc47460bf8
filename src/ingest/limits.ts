import { apiVersionOf, classes } from '../kube/resources.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { storeLimits } from '../queue/queues.ts';
import { readClassSettings } from '../volumes/class-settings.ts';
import { isKnownAs } from '../volumes/driver-facts.ts';
import type { DriverDeps } from './driver-deps.ts';

/** Writes the limits of the driver's queues from the flags to Redis. Rejects while Redis can't be
 * reached. */
export async function writeLimits({ context, place }: DriverDeps): Promise<void> {
  const { maxJobsInFlight: maxInFlight, maxJobsPerSecond: maxPerSecond } = context.flags;
  const limits = { maxInFlight, maxPerSecond };
  await storeLimits(place, limits);
  if (maxInFlight + maxPerSecond > 0)
    context.log.info({ driver: place.driver, ...limits }, 'the driver’s queues have limits');
}

/** @returns sends an event for each class of the driver with an unreadable annotation, once for
 *   each version of the class. To be called when this ingest begins to lead, and at each change of
 *   a class; does nothing if this ingest does not lead */
export function classWarner({
  driver: { name },
  source,
  isLeading,
  events,
}: DriverDeps): () => void {
  const driver = { name, inTreeName: inTreeNameOf(name) };
  const object = { kind: classes.kind, apiVersion: apiVersionOf(classes) };
  let told = new Map<string, string>();
  return () => {
    const seen = new Map<string, string>();
    for (const cls of isLeading() ? source.classes() : []) {
      const { name: className, uid, resourceVersion } = cls.metadata;
      seen.set(uid, resourceVersion);
      if (!isKnownAs(driver, cls.provisioner) || told.get(uid) === resourceVersion) continue;
      const regarding = { ...object, name: className, uid, resourceVersion };
      for (const message of readClassSettings(cls).unreadable)
        events.record({ regarding, type: 'Warning', reason: 'InvalidAnnotation', message });
    }
    told = seen;
  };
}

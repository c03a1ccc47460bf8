import { apiVersionOf, classes } from '../kube/resources.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { storeLimits } from '../queue/queues.ts';
import { readClassSettings } from '../volumes/class-settings.ts';
import { isKnownAs } from '../volumes/driver-facts.ts';
import type { DriverDeps } from './driver-deps.ts';

/** Writes the limits of the driver's queues to Redis as the flags say, for a leader that begins.
 * Rejects while Redis can't be reached. */
export async function writeLimits({ context, place }: DriverDeps): Promise<void> {
  const { maxJobsInFlight: maxInFlight, maxJobsPerSecond: maxPerSecond } = context.flags;
  const limits = { maxInFlight, maxPerSecond };
  await storeLimits(place, limits);
  if (maxInFlight + maxPerSecond > 0)
    context.log.info({ driver: place.driver, ...limits }, 'the driver’s queues have limits');
}

/** @returns warns on each class of the driver, once for each version of it, of annotations that
 *   can't be read, while this ingest leads; to be called when it begins, and at each change of a
 *   class */
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

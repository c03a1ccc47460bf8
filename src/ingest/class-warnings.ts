import { apiVersionOf, classes } from '../kube/resources.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { readClassSettings } from '../volumes/class-settings.ts';
import { isKnownAs } from '../volumes/driver-facts.ts';
import type { DriverDeps } from './driver-deps.ts';
import type { ObjectSource } from './objects/object-source.ts';

const LOOK_EVERY_MS = 1_000;

/** Warns on each class of the driver, once for each version of it, of annotations that can't be
 * read, while this ingest leads. */
export function openClassWarnings(
  { context: { closers }, driver: { name }, queue, events }: DriverDeps,
  source: Pick<ObjectSource, 'classes'>,
): void {
  const driver = { name, inTreeName: inTreeNameOf(name) };
  const object = { kind: classes.kind, apiVersion: apiVersionOf(classes) };
  let told = new Map<string, string>();
  const look = (): void => {
    const seen = new Map<string, string>();
    for (const cls of queue.isAllowing ? source.classes() : []) {
      const { name: className, uid, resourceVersion } = cls.metadata;
      seen.set(uid, resourceVersion);
      if (!isKnownAs(driver, cls.provisioner) || told.get(uid) === resourceVersion) continue;
      const regarding = { ...object, name: className, uid, resourceVersion };
      for (const message of readClassSettings(cls).unreadable)
        events.record({ regarding, type: 'Warning', reason: 'InvalidAnnotation', message });
    }
    told = seen;
  };
  const timer = setInterval(look, LOOK_EVERY_MS);
  closers.add('warnings about classes', () => clearInterval(timer));
}

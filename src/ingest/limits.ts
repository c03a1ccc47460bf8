import { apiVersionOf, classes } from '../kube/resources.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { storeLimits } from '../queue/queues.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import { readClassSettings } from '../volumes/class-settings.ts';
import { isKnownAs } from '../volumes/driver-facts.ts';
import type { DriverDeps } from './driver-deps.ts';
import type { ObjectSource } from './objects/object-source.ts';

const PERIOD_MS = 5_000;
/** While this ingest does not lead, or Redis can't be used. */
const IDLE_PERIOD_MS = 1_000;

/** Keeps the limits of the driver's queues in Redis as the flags say, while this ingest leads,
 * and again where Redis has lost them. Those of a class are in the class; of those that can't be
 * read it warns. */
export function openLimits(
  deps: DriverDeps,
  source: ObjectSource,
  onClassChange: (listener: () => void) => void,
): { readonly storeNow: () => void } {
  const { context, connections, driver, queue } = deps;
  const { link } = connections;
  const { closers, log, flags } = context;
  const warn = warnOfClasses(deps, source);
  const store = async (): Promise<number | void> => {
    warn();
    if (!queue.isAllowing || link.trouble !== undefined) return IDLE_PERIOD_MS;
    const { redisPrefix: prefix, maxJobsInFlight, maxJobsPerSecond } = flags;
    const limits = { maxInFlight: maxJobsInFlight, maxPerSecond: maxJobsPerSecond };
    if (await storeLimits(link.redis, { prefix, driver: driver.name }, limits))
      log.info({ driver: driver.name, ...limits }, 'the limits of the driver’s queues changed');
  };
  const loop = new PollLoop({
    step: store,
    onError: (error) => log.debug({ err: error }, 'could not store the limits; trying again'),
    periodMs: PERIOD_MS,
  });
  closers.add('limits', () => loop.stop());
  onClassChange(() => loop.runNow());
  return { storeNow: () => loop.runNow() };
}

/** @returns warns on each class of the driver, once for each version of it, of annotations that
 *   can't be read, while this ingest leads */
function warnOfClasses(
  { driver: { name }, queue, events }: DriverDeps,
  source: ObjectSource,
): () => void {
  const driver = { name, inTreeName: inTreeNameOf(name) };
  const object = { kind: classes.kind, apiVersion: apiVersionOf(classes) };
  let told = new Map<string, string>();
  return () => {
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
}

import { randomInt } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { NO_CAPACITY_HINTS, openCapacityHints } from '../capacity/hints.ts';
import { doubtMsOf } from '../election/flags.ts';
import type { LeaseView } from '../election/lease-view.ts';
import { redisSharedHandles } from '../hints/shared-handles.ts';
import type { JournalPlace } from '../journal/list-journal.ts';
import { eventComponent, EventRecorder } from '../kube/events.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { ClassLimits } from '../queue/class-limit.ts';
import { systemClock } from '../runtime/clock.ts';
import { type Logger, traceStep } from '../runtime/log.ts';
import { supportsTopology } from '../volumes/driver-facts.ts';
import type { FeatureGates } from '../volumes/flags.ts';
import type { DriverCaches } from './caches.ts';
import { RefusedSizes } from './claim/refused-sizes.ts';
import type { Dependencies, DriverDeps } from './dependencies.ts';
import { createOperationCounts } from './operation-counts.ts';
import { listOpenSources } from './release-sources.ts';
import { VolumeLists } from './volume/volume-lists.ts';

/** How long after a run could have ended its key keeps its place within the limit of its class
 * without another run. */
const KEEP_PLACE_MS = 120_000;

/** Makes what the runs of claims, volumes and snapshots work with. */
export function buildDependencies(
  { context, connections, driver, shared }: DriverDeps,
  parts: {
    readonly caches: DriverCaches;
    readonly lease: LeaseView;
    readonly journal: JournalPlace;
    readonly gates: FeatureGates;
  },
): Dependencies {
  const { flags, closers, log, metrics } = context;
  const { kube, gateways, link } = connections;
  const { caches, gates, lease, journal } = parts;
  const component = eventComponent(driver.name, context.env);
  const events = new EventRecorder({ client: kube, component, log, metrics });
  closers.add('events', () => events.close(2_000));
  const place = { redis: link.redis, prefix: flags.redisPrefix, driver: driver.name };
  const published = redisSharedHandles(place);
  const lists = new VolumeLists(kube);
  const inTreeName = inTreeNameOf(driver.name);
  const ownNode = shared.ownLeader?.node;
  const ofNode = ownNode === undefined ? '' : `-${ownNode}`;
  const identity = `${Date.now()}-${randomInt(10_000)}-${driver.name}${ofNode}`;
  const facts = () => ({ ...connections.driver.current(), inTreeName, ownNode });
  return {
    cluster: {
      kube: traceCalls(kube, 'kube', log),
      events,
      classOf: caches.classOf,
      classes: caches.classes,
      attachedTo: caches.attachedTo,
      topology: () => (supportsTopology(facts(), gates) ? caches.topology() : undefined),
      listVolumes: () => lists.list(),
      freshClaim: (key) => shared.ownLeader?.freshClaim(key),
    },
    lease,
    journal,
    openSources: () => listOpenSources(kube, journal),
    driver: {
      facts,
      csi: traceCalls(gateways, 'csi', log),
      timeoutMs: flags.timeoutMs,
      endpoint: gateways.soleAddress,
      refusedSizes: new RefusedSizes(systemClock),
    },
    redis: {
      classLimits: new ClassLimits({ ...place, keepMs: doubtMsOf(flags) + KEEP_PLACE_MS }),
      sharersOf: async (volume) => (await published.sharersOf(volume)) ?? lists.sharersOf(volume),
    },
    settings: {
      options: { ...flags, gates, defaultFsType: flags.defaultFstype, identity },
      doubtMs: doubtMsOf(flags),
      retryMaxMs: flags.retryIntervalMaxMs,
      bindsAtOnce: flags.nodeDeploymentImmediateBinding,
    },
    reports: {
      counts: createOperationCounts(metrics),
      capacity: flags.enableCapacity ? openCapacityHints(place, log) : NO_CAPACITY_HINTS,
      log,
    },
    clock: systemClock,
  };
}

/** With -v=6: the same object, except that each call of a method that returns a promise is logged,
 * with the time at which it began and how long it took. Otherwise the object as it is. */
function traceCalls<T extends object>(target: T, name: string, log: Logger): T {
  if (!log.isLevelEnabled('trace')) return target;
  return new Proxy(target, {
    get(_, property) {
      const value: unknown = Reflect.get(target, property, target);
      if (typeof value !== 'function') return value;
      return (...args: readonly unknown[]): unknown => {
        const startedMs = performance.now();
        const result: unknown = Reflect.apply(value, target, args);
        if (!(result instanceof Promise)) return result;
        return result.finally(() => traceStep(log, `${name}.${String(property)}`, startedMs));
      };
    },
  });
}

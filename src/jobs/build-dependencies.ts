import { randomInt } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { openCapacityHints } from '../capacity/hints.ts';
import { repeatWhileFull } from '../gateway-client/pool.ts';
import { eventComponent, EventRecorder } from '../kube/events.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { openNodeLocal } from '../node-local/open-node-local.ts';
import { ClassTurns } from '../queue/class-turns.ts';
import { WatchLifeReader } from '../queue/watch-life.ts';
import { ownershipMs } from '../records/flags.ts';
import { VolumeNames } from '../records/names-in-use.ts';
import { openSources } from '../records/open-records.ts';
import { redisSharedHandles } from '../records/shared-handles.ts';
import type { VolumeRecords } from '../records/volume-record.ts';
import { systemClock } from '../runtime/clock.ts';
import { type Logger, traceStep } from '../runtime/log.ts';
import { supportsTopology } from '../volumes/driver-facts.ts';
import type { FeatureGates } from '../volumes/flags.ts';
import type { DriverCaches } from './caches.ts';
import { ClaimCopyReader } from './claim/claim-copy.ts';
import type { Dependencies, DriverDeps } from './dependencies.ts';
import { createOperationCounts } from './operation-counts.ts';

/** How long after a run could have ended its key keeps a turn of its class without another run. */
const KEEP_TURN_MS = 120_000;

/** Makes what the runs of claims, volumes and snapshots work with. */
export function buildDependencies(
  { context, connections, driver, instance, shared }: DriverDeps,
  parts: {
    readonly caches: DriverCaches;
    readonly records: VolumeRecords;
    readonly gates: FeatureGates;
  },
): Dependencies {
  const { flags, closers, log, metrics } = context;
  const { kube, gateways, link } = connections;
  const { caches, records, gates } = parts;
  const component = eventComponent(driver.name, context.env);
  const events = new EventRecorder({ client: kube, component, log, metrics });
  closers.add('events', () => events.close(2_000));
  const place = { redis: link.redis, prefix: flags.redisPrefix, driver: driver.name };
  const identity = `${Date.now()}-${randomInt(10_000)}-${driver.name}`;
  const inTreeName = inTreeNameOf(driver.name);
  const ownNode = shared.softState?.node;
  const facts = () => ({ ...connections.driver.current(), inTreeName, ownNode });
  const csi = repeatWhileFull(gateways.calls, { clock: systemClock, random: Math.random });
  return {
    cluster: {
      kube: traceCalls(kube, 'kube', log),
      events,
      classOf: caches.classOf,
      classes: caches.classes,
      attachedTo: caches.attachedTo,
      topology: () => (supportsTopology(facts(), gates) ? caches.topology() : undefined),
    },
    driver: {
      facts,
      csi: traceCalls(csi, 'csi', log),
      timeoutMs: flags.timeoutMs,
      endpoint: gateways.soleAddress,
      nodeLocal: openNodeLocal(connections, {
        driver: driver.name,
        prefix: flags.redisPrefix,
        keepMs: ownershipMs(flags) + 2 * flags.retryIntervalMaxMs,
        timeoutMs: flags.timeoutMs,
        choosesNodes: flags.nodeDeploymentImmediateBinding,
      }),
    },
    redis: {
      records: traceCalls(records, 'records', log),
      newOwner: createOwnerNames(instance),
      copies: new ClaimCopyReader(
        new WatchLifeReader(place),
        place,
        () => shared.recordKeys?.current,
      ),
      names: new VolumeNames(link.redis, flags.redisPrefix, driver.name),
      turns: new ClassTurns(link.redis, { ...place, keepMs: ownershipMs(flags) + KEEP_TURN_MS }),
      openSources: () => openSources(link.redis, flags.redisPrefix, driver.name),
      sharersOf: redisSharedHandles(link.redis, flags.redisPrefix, driver.name).sharersOf,
    },
    settings: {
      options: { ...flags, gates, defaultFsType: flags.defaultFstype, identity },
      writeAllowanceMs: flags.writeAllowanceMs,
      retryMaxMs: flags.retryIntervalMaxMs,
      areSecretsWatched: flags.watchSecrets,
      usesClaimFinalizer: flags.claimFinalizer,
      isSoftState: shared.softState !== undefined,
    },
    reports: {
      counts: createOperationCounts(metrics),
      capacity: openCapacityHints(flags, link.redis, { driver: driver.name, log }),
      log,
    },
    clock: systemClock,
  };
}

/** Owner names, unique among all runs of all processes, so that a run that was replaced is not
 * taken for its successor. */
function createOwnerNames(instance: string): () => string {
  let runs = 0;
  return () => `${instance}-${(runs += 1)}`;
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

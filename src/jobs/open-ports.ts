import { randomInt } from 'node:crypto';
import { repeatWhileFull } from '../gateway-client/repeat-while-full.ts';
import { eventComponent, EventRecorder } from '../kube/events.ts';
import { VolumeNames } from '../records/names-in-use.ts';
import { openSources } from '../records/open-sources.ts';
import { redisSharedHandles } from '../records/shared-handles.ts';
import type { VolumeRecords } from '../records/volume-record.ts';
import { ownershipMs } from '../records/flags.ts';
import { systemClock } from '../runtime/clock.ts';
import type { FeatureGates } from '../volumes/flags.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import type { Base } from './base.ts';
import type { DriverCaches } from './caches.ts';
import { openCapacityHints } from '../capacity/hints.ts';
import { openNodeLocal } from '../node-local/open-node-local.ts';
import { createOperationCounts } from './operation-counts.ts';
import type { ProcessorPorts } from './ports.ts';

/** Connects the processors of claims, volumes and snapshots with what they work with. */
export function openPorts(
  base: Base,
  parts: {
    readonly caches: DriverCaches;
    readonly records: VolumeRecords;
    readonly gates: FeatureGates;
  },
): ProcessorPorts {
  const { context, connections, driver, instance } = base;
  const { flags, closers, log, metrics } = context;
  const { kube, gateways, link } = connections;
  const component = eventComponent(driver.name, context.env);
  const events = new EventRecorder({ client: kube, component, log, metrics });
  closers.add('events', () => events.close(2_000));
  const identity = `${Date.now()}-${randomInt(10_000)}-${driver.name}`;
  const inTreeName = inTreeNameOf(driver.name);
  return {
    kube,
    csi: repeatWhileFull(gateways.calls, { clock: systemClock, random: Math.random }),
    records: parts.records,
    openSources: () => openSources(link.redis, flags.redisPrefix, driver.name),
    names: new VolumeNames(link.redis, flags.redisPrefix, driver.name),
    events,
    counts: createOperationCounts(metrics),
    capacity: openCapacityHints(flags, link.redis, { driver: driver.name, log }),
    classOf: parts.caches.classOf,
    attachedTo: parts.caches.attachedTo,
    topology: parts.caches.topology,
    nodeLocal: openNodeLocal(connections, {
      driver: driver.name,
      prefix: flags.redisPrefix,
      keepMs: ownershipMs(flags) + 2 * flags.retryIntervalMaxMs,
      timeoutMs: flags.timeoutMs,
      choosesNodes: flags.nodeDeploymentImmediateBinding,
    }),
    sharersOf: redisSharedHandles(link.redis, flags.redisPrefix, driver.name).sharersOf,
    driver: () => ({ ...connections.driver.current(), inTreeName }),
    options: { ...flags, gates: parts.gates, defaultFsType: flags.defaultFstype, identity },
    timeoutMs: flags.timeoutMs,
    writeAllowanceMs: flags.writeAllowanceMs,
    areSecretsWatched: flags.watchSecrets,
    usesClaimFinalizer: flags.claimFinalizer,
    retryMaxMs: flags.retryIntervalMaxMs,
    endpoint: gateways.soleAddress,
    newOwner: createOwnerNames(instance),
    clock: systemClock,
    log,
  };
}

/** Owner names, unique among all runs of all processes, so that a run that was replaced is not
 * taken for its successor. */
function createOwnerNames(instance: string): () => string {
  let runs = 0;
  return () => `${instance}-${(runs += 1)}`;
}

import { randomInt } from 'node:crypto';
import {
  instanceName,
  openConnections,
  type Connections,
} from '../connections/open-connections.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import { repeatWhileFull } from '../gateway-client/repeat-while-full.ts';
import { EventRecorder, eventComponent } from '../kube/events.ts';
import { Consumer, type Run } from '../queue/consumer.ts';
import type { JobKey, JobKind } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import { ownershipMs } from '../records/flags.ts';
import { VolumeNames } from '../records/names-in-use.ts';
import { openSources } from '../records/open-sources.ts';
import { redisSharedHandles } from '../records/shared-handles.ts';
import { VolumeRecords } from '../records/volume-record.ts';
import { systemClock, timerMs } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { runProcess, type Invocation, type ProcessContext } from '../runtime/process.ts';
import { parseFeatureGates, type FeatureGates } from '../volumes/feature-gates.ts';
import { inTreeNameOf } from '../volumes/migration/plugins.ts';
import { startCaches, type Caches } from './caches.ts';
import {
  capacityPlace,
  type CapacityPlace,
  openCapacity,
  openCapacityHints,
} from './capacity/open-capacity.ts';
import { reconcileClaim } from './claim/reconcile-claim.ts';
import { flags as table, summary } from './flags.ts';
import { type LostRecords, startLostRecords } from './lost-records.ts';
import { openNodeLocal } from './node-local/open-node-local.ts';
import { createOperationCounts } from './operation-counts.ts';
import type { ProcessorPorts } from './ports.ts';
import { runToOutcome } from './run-to-outcome.ts';
import { reconcileSnapshot } from './snapshot/reconcile-snapshot.ts';
import { reconcileVolume } from './volume/reconcile-volume.ts';

type Context = ProcessContext<typeof table>;

/** What the parts of jobs are made of. */
interface Base {
  readonly context: Context;
  readonly connections: Connections;
  readonly driver: DriverInfo;
  /** Name of this process that no other one has. */
  readonly instance: string;
}

/** The jobs process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'jobs', summary, table, start });
}

async function start(context: Context): Promise<void> {
  const { flags, health, log, stopping } = context;
  const gates = checkFlags(flags);
  const place = capacityPlace(context);
  const instance = instanceName(context);
  const redisName = `sutler-records:${instance}`;
  const connections = await openConnections(context, 'jobs', redisName);
  const caches = openCaches(context, connections, gates);
  health.ready('queues', () => 'not started yet');
  health.live('progress', () => undefined);
  context.announce(await openHttpEndpoint(context));
  const driver = await connections.driver.waitUntilKnown(stopping);
  if (driver === undefined) return;
  await caches.waitForSync(driver, stopping);
  if (stopping.aborted) return;

  const base = { context, connections, driver, instance };
  const records = await openRecords(base);
  const lostRecords = openLostRecords(base, records);
  const ports = createPorts(base, { caches, records, gates });
  await connections.marker.waitUntilOurs(stopping);
  if (stopping.aborted) return;
  const startOne = consumerStarter(base, lostRecords);
  startConsumers(base, ports, startOne);
  startCapacity(base, { place, classOf: caches.classOf, startOne });
  log.info({ driver: driver.name, workers: flags.workerThreads }, 'taking jobs');
}

/** @throws UsageError for flags that can't be used */
function checkFlags(flags: Context['flags']): FeatureGates {
  if (flags.volumeNameUuidLength === 0) {
    throw new UsageError(
      '--volume-name-uuid-length: 0 would give all claims one name; choose -1 or 1 to 32',
    );
  }
  const gates = parseFeatureGates(flags.featureGates);
  if (typeof gates === 'string') throw new UsageError(`--feature-gates: ${gates}`);
  return gates;
}

function openCaches(
  { closers, health, log, metrics }: Context,
  { kube }: Connections,
  gates: FeatureGates,
): Caches {
  const caches = startCaches({ client: kube, log, metrics, gates });
  closers.add('caches', () => caches.stop());
  health.ready('kubernetes', () => caches.trouble);
  return caches;
}

async function openRecords({
  context,
  connections,
  driver,
  instance,
}: Base): Promise<VolumeRecords> {
  const { flags } = context;
  const records = new VolumeRecords({
    redis: connections.link.redis,
    prefix: flags.redisPrefix,
    driver: driver.name,
    ownMs: ownershipMs(flags),
    settleMs: flags.settleTimeMs,
    processName: instance,
  });
  // Only saves the first run a refusal, so Redis need not be there yet.
  await records.learnIncarnation().catch(() => undefined);
  return records;
}

function openLostRecords({ context, connections }: Base, records: VolumeRecords): LostRecords {
  const isRedisOurs = () => connections.marker.isOurs;
  const lostRecords = startLostRecords({ records, isRedisOurs, log: context.log });
  context.closers.add('open records', () => lostRecords.stop());
  connections.link.onReady(() => lostRecords.checkNow());
  return lostRecords;
}

function createPorts(
  { context, connections, driver, instance }: Base,
  parts: {
    readonly caches: Caches;
    readonly records: VolumeRecords;
    readonly gates: FeatureGates;
  },
): ProcessorPorts {
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
    capacity: openCapacityHints(context, connections, driver.name),
    classOf: parts.caches.classOf,
    attachedTo: parts.caches.attachedTo,
    topology: () => parts.caches.topology(driver.name),
    nodeLocal: openNodeLocal(context, connections, driver.name),
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

/** There are few snapshots to remove our finalizer from, and none of them is urgent. */
const SNAPSHOT_CONCURRENCY = 2;

type StartOne = (
  kind: JobKind,
  concurrency: number,
  reconcile: (key: JobKey, run: Run) => Promise<Outcome>,
) => Consumer;

/** @returns a function that starts a consumer, which takes nothing from another cluster's Redis */
function consumerStarter(
  { context, connections, driver, instance }: Base,
  lostRecords: LostRecords,
): StartOne {
  const { flags, closers, log, metrics } = context;
  const { marker } = connections;
  return (kind, concurrency, reconcile) => {
    const consumer = new Consumer({
      redisUrl: flags.redisUrl,
      redisAccess: connections.redisAccess,
      prefix: flags.redisPrefix,
      driver: driver.name,
      name: instance,
      backoff: { startMs: flags.retryIntervalStartMs, maxMs: flags.retryIntervalMaxMs },
      lockMs: timerMs(flags.lockDurationMs),
      stalledCheckMs: Math.min(5_000, flags.lockDurationMs / 2),
      kind,
      concurrency,
      process: (key, run) => runToOutcome(key, log, () => reconcile(key, run)),
      onRedisEmptied: () => lostRecords.checkNow(),
      log,
      metrics,
    });
    if (!marker.isOurs) void consumer.pause();
    marker.onChange((isOurs) => void (isOurs ? consumer.resume() : consumer.pause()));
    closers.add(`${kind} consumer`, () => consumer.close(flags.gracePeriodMs));
    return consumer;
  };
}

/** A consumer for each queue of claims, volumes and snapshots. */
function startConsumers(
  { context: { flags, health }, driver }: Base,
  ports: ProcessorPorts,
  startOne: StartOne,
): void {
  const consumers = [
    startOne('claim', flags.workerThreads, (key, run) => reconcileClaim(ports, key, run)),
    startOne('volume', flags.workerThreads, (key, run) => reconcileVolume(ports, key, run)),
  ];
  // A consumer is a connection, and ingest enqueues no snapshots for a driver that makes none.
  if (driver.controllerCapabilities.has('CREATE_DELETE_SNAPSHOT'))
    consumers.push(
      startOne('snapshot', SNAPSHOT_CONCURRENCY, (key) => reconcileSnapshot(ports, key)),
    );
  health.ready('queues', () => firstOf(consumers.map(({ trouble }) => trouble)));
  health.live('progress', () => firstOf(consumers.map(({ stuck }) => stuck)));
}

/** Takes jobs of the capacity queue, if this process shall, when what it needs has been found. */
function startCapacity(
  { context, connections, driver }: Base,
  parts: {
    readonly place: CapacityPlace | undefined;
    readonly classOf: Caches['classOf'];
    readonly startOne: StartOne;
  },
): void {
  const { place, classOf } = parts;
  if (place === undefined) return;
  openCapacity(context, connections, {
    place,
    driver: driver.name,
    classOf,
    startConsumer(reconcile) {
      const consumer = parts.startOne('capacity', context.flags.capacityThreads, reconcile);
      return () => consumer.trouble ?? consumer.stuck;
    },
  });
}

function firstOf(lines: readonly (string | undefined)[]): string | undefined {
  return lines.find((line) => line !== undefined);
}

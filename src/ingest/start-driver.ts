import { redisAuditLedger } from '../audit/audit.ts';
import { startPeriodicAudit } from '../audit/periodic-audit.ts';
import { capacityNamespace } from '../capacity/flags.ts';
import { startRefresher } from '../capacity/start-refresher.ts';
import type { DriverConnections } from '../connections/open-connections.ts';
import { checkLeaseTimes, leaseName, type LeaseTimes } from '../election/lease.ts';
import type { SoftState } from '../election/soft-state.ts';
import { leaseNamespace } from '../election/flags.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import { eventComponent, EventRecorder } from '../kube/events.ts';
import type { Volume } from '../kube/objects.ts';
import { apiVersionOf, classes, leases, volumes } from '../kube/resources.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { JOB_KINDS } from '../queue/contract.ts';
import { DependencyIndex, parseObjectId } from '../queue/dependency-index.ts';
import type { ProducerConnection } from '../queue/connections.ts';
import type { CopySource } from '../queue/claim-copies.ts';
import { Producer } from '../queue/producer.ts';
import { quarantineMs } from '../records/flags.ts';
import { type RecordKeys, sealOf } from '../records/record-seal.ts';
import { openJobs, openRecords } from '../records/open-records.ts';
import { redisReservedCapacity } from '../node-local/reserved-capacity.ts';
import { redisSharedHandles } from '../records/shared-handles.ts';
import { systemClock, timerMs } from '../runtime/clock.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { WatchedFiles } from '../runtime/watched-files.ts';
import { volumeFailedDelete } from '../volumes/deletion.ts';
import { explainShared } from '../volumes/handles.ts';
import { DemandWatch } from './dependencies/demand-watch.ts';
import { DependencyWatcher } from './dependencies/dependency-watcher.ts';
import { FollowedObjects } from './dependencies/followed-objects.ts';
import { NodeLocalVersions } from './dependencies/node-local-versions.ts';
import type { Context, DriverDeps } from './driver-deps.ts';
import type { EventSource } from './event-source.ts';
import { resyncMs } from './flags.ts';
import { HandlePublisher } from './handle-publishers.ts';
import { LeaderOnlyQueue } from './leader-only-queue.ts';
import { EventHandler } from './objects/event-handler.ts';
import type { ObjectSource } from './objects/object-source.ts';
import { type Leadership, openElection, openLeadership } from './leadership.ts';
import { openLimits } from './limits.ts';
import { PendingReport } from './pending-report.ts';
import { ProvisioningPause } from './provisioning-pause.ts';
import { Resync } from './resync.ts';

/** What all drivers of an ingest process share, beside its connections. */
export interface Shared {
  readonly producerConnection: ProducerConnection;
  /** The objects of all drivers. It begins at the first call. */
  readonly eventSource: () => EventSource;
  /** What --record-key-file says; undefined without the flag. */
  readonly recordKeys: Pick<WatchedFiles<RecordKeys>, 'current'> | undefined;
  /** Set where jobs is the same process, and Redis its own. */
  readonly softState?: SoftState | undefined;
}

/** Begins what ingest does for one driver, as soon as the driver is known. Resolves when it
 * competes for the Lease, or when the context's signal aborts. */
export async function startDriver(
  context: Context,
  connections: DriverConnections,
  shared: Shared,
): Promise<void> {
  const { stopping } = context;
  const times = leaseTimes(context);
  const namespace = await leaseNamespace(context.flags.leaderElectionNamespace, context.env);
  const driver = await connections.driver.waitUntilKnown(stopping);
  if (driver === undefined) return;

  const eventSource = shared.eventSource();
  const queue = openQueue(context, shared, { driver, eventSource, times });
  /** Notified of each object that changes, by its id in the dependency index. */
  const changes = new Listeners<string>();
  const pause = openPause(context, changes);
  const events = openEvents(context, connections, driver);
  const lease = { namespace, name: leaseName(driver.name) };
  const { softState } = shared;
  const deps = { context, connections, driver, lease, queue, pause, events, softState };
  const { handler, followed } = await serveDriver(deps, eventSource, changes);
  if (stopping.aborted) return;
  const dependencies = openDependencies(deps, followed, changes);
  openHandlePublisher(deps, eventSource, dependencies);
  openAudit(deps);
  openLimits(deps, eventSource.source, onClassChange(changes));
  openCapacity(deps, eventSource.source, changes);
  const leadership = openLeadership(
    deps,
    eventSource.source,
    openResync(deps, eventSource.source, handler),
  );
  reportLostNotices(context, eventSource, leadership);
  await connections.marker.waitUntilOurs(stopping);
  if (stopping.aborted) return;
  openPendingReport(deps, eventSource, handler, openElection(deps, times, leadership));
}

/** Tells people what waits. */
function openPendingReport(
  { context, connections: { link }, driver, queue, events, softState }: DriverDeps,
  { source }: EventSource,
  handler: EventHandler,
  whyNoLeader: () => string | undefined,
): void {
  const { flags, closers, log, metrics } = context;
  const report = new PendingReport({
    pending: () => handler.pending(source.unfinished()),
    isLeading: () => queue.isAllowing,
    whyNoLeader,
    isSoftState: softState !== undefined,
    link,
    prefix: flags.redisPrefix,
    driver: driver.name,
    events,
    metrics,
    clock: systemClock,
    log,
  });
  closers.add('report of what waits', () => report.stop());
}

function reportLostNotices(
  { closers }: Context,
  { reader }: EventSource,
  leadership: Leadership,
): void {
  const end = reader?.lost.subscribe(() => leadership.noticesLost());
  closers.add('reports of lost notices', () => end?.());
}

/** Begins to serve the driver. Resolves when all its objects are known. */
async function serveDriver(
  deps: DriverDeps,
  eventSource: EventSource,
  changes: Listeners<string>,
): Promise<{ readonly handler: EventHandler; readonly followed: FollowedObjects }> {
  const { context, connections, driver: info, queue, events, softState } = deps;
  const { closers, log, stopping } = context;
  const { source, informers } = eventSource;
  const driver = { ...info, inTreeName: inTreeNameOf(info.name), ownNode: softState?.node };
  const sharing = informers && {
    sharersOf: (volume: Volume) => informers.sharersOf(volume),
    read: (name: string) => connections.kube.get<Volume>(volumes, { name }),
    onRefused: (volume: Volume, other: string) =>
      events.record(volumeFailedDelete(volume, explainShared(other))),
  };
  const handler = new EventHandler({ driver, queue, lookups: source, sharing, log });
  const followed = openFollowedObjects(deps, eventSource, changes);
  const serving = source.serve({
    handler,
    onVersion(object, version) {
      followed.saw(object, version);
      changes.notify(object);
    },
    onListed: (resource) => followed.listed(resource),
  });
  closers.add('objects of the driver', () => serving.stop());
  await serving.waitForSync(stopping);
  return { handler, followed };
}

/** Looks after storage capacity, with --enable-capacity. */
function openCapacity(
  { context, connections, driver, queue, softState }: DriverDeps,
  source: ObjectSource,
  changes: Listeners<string>,
): void {
  startRefresher(context, connections, {
    driver: driver.name,
    ownNode: softState?.node,
    classes: () => source.classes(),
    queue,
    onClassChange: onClassChange(changes),
  });
}

function onClassChange(changes: Listeners<string>): (listener: () => void) => void {
  return (listener) =>
    changes.subscribe((object) => {
      if (parseObjectId(object).resource === classes.plural) listener();
    });
}

/** @throws UsageError for times that can't work together, and a variable that is not set */
export function checkFlags(context: Pick<Context, 'flags' | 'env'>): void {
  if (context.flags.enableCapacity) capacityNamespace(context.env);
  checkLeaseTimes(leaseTimes(context));
}

function leaseTimes({ flags }: Pick<Context, 'flags'>): LeaseTimes {
  return {
    leaseDurationMs: flags.leaderElectionLeaseDurationMs,
    renewDeadlineMs: flags.leaderElectionRenewDeadlineMs,
    retryPeriodMs: flags.leaderElectionRetryPeriodMs,
  };
}

/** Checks that /readyz and /healthz have before their parts are opened. Upstream's liveness probe,
 * too, asks for leader-election from the start, and where --leader-election is false. */
export function addFirstChecks(health: Context['health']): void {
  health.live('leader-election', () => undefined);
}

function openQueue(
  { flags, closers, log, metrics }: Context,
  { producerConnection: connection, recordKeys }: Shared,
  o: {
    readonly driver: DriverInfo;
    readonly eventSource: EventSource;
    readonly times: LeaseTimes;
  },
): LeaderOnlyQueue {
  const driver = o.driver.name;
  const { redisPrefix: prefix, enableCapacity } = flags;
  const kinds = enableCapacity ? { kinds: JOB_KINDS } : {};
  const copies: CopySource = {
    heardMs: () => (queue.isAllowing ? o.eventSource.informers?.claimsHeardMs : undefined),
    seal: (part) => sealOf(recordKeys?.current, part),
  };
  const producer = new Producer({ connection, prefix, driver, ...kinds, copies, log, metrics });
  closers.add('producer', () => producer.close());
  const queue = new LeaderOnlyQueue(producer, 2 * o.times.leaseDurationMs);
  return queue;
}

function openEvents(
  { env, closers, log, metrics }: Context,
  { kube }: DriverConnections,
  driver: DriverInfo,
): EventRecorder {
  const component = eventComponent(driver.name, env);
  const events = new EventRecorder({ client: kube, component, log, metrics });
  closers.add('events', () => events.close(1_000));
  return events;
}

/** Resyncs at each interval; leadership.ts says when else. */
function openResync(
  { context, connections: { link }, driver, queue }: DriverDeps,
  source: ObjectSource,
  handler: EventHandler,
): Resync {
  const { flags, closers, log } = context;
  const resync = new Resync({
    outstanding: () => handler.outstanding(source),
    queue,
    openJobs: () => openJobs(link.redis, flags.redisPrefix, driver.name),
    quarantineMs: quarantineMs(flags),
    clock: systemClock,
    log,
  });
  const timer = setInterval(() => void resync.run('resync'), timerMs(resyncMs(flags)));
  closers.add('resync', () => {
    clearInterval(timer);
    resync.stop();
  });
  return resync;
}

/** Follows whether new work is started, and says so in /readyz while none is. */
function openPause({ health, log }: Context, changes: Listeners<string>): ProvisioningPause {
  const pause = new ProvisioningPause(changes, log);
  health.note('drain', () => pause.note);
  return pause;
}

/** How often to read the claims and volumes that keys wait for, where no watch tells of them. */
const POLL_MS = 30_000;

function openFollowedObjects(
  { context: { closers, log }, connections: { kube } }: DriverDeps,
  { source, informers }: EventSource,
  changes: Listeners<string>,
): FollowedObjects {
  const followed = new FollowedObjects({
    client: kube,
    trouble: () => source.trouble,
    onChange: (object) => changes.notify(object),
    ...(informers === undefined ? { pollMs: POLL_MS } : {}),
    clock: systemClock,
    log,
  });
  closers.add('followed objects', () => followed.stop());
  return followed;
}

/** Promotes parked keys when the object changes that they wait for. */
function openDependencies(
  { context, connections, driver: { name: driver }, queue, pause, softState }: DriverDeps,
  followed: FollowedObjects,
  changes: Listeners<string>,
): DependencyIndex {
  const { flags, closers, log, metrics } = context;
  const { kube, link, nodeGateways } = connections;
  const { redisPrefix: prefix, watchSecrets } = flags;
  const onChange = (object: string): void => changes.notify(object);
  const demand = new DemandWatch({
    client: kube,
    driver,
    ownNode: softState?.node,
    watchSecrets,
    onChange,
    clock: systemClock,
    log,
    metrics,
  });
  closers.add('watch on demand', () => demand.stop());
  const place = { redis: link.redis, prefix, driver };
  const room = redisReservedCapacity(link.redis, place, 0);
  const nodeLocal =
    nodeGateways === undefined
      ? []
      : [new NodeLocalVersions({ gateways: nodeGateways, room, onChange, log })];
  const index = new DependencyIndex(place);
  const watcher = new DependencyWatcher({
    index,
    sources: [followed, demand, pause, ...nodeLocal],
    isLeading: () => queue.isAllowing,
    driver,
    clock: systemClock,
    log,
    metrics,
  });
  closers.add('dependency watcher', () => watcher.stop());
  changes.subscribe((object) => watcher.changed(object));
  pause.allowed.subscribe(() => watcher.readNow());
  return index;
}

/** Tells the workers which handles several PVs name. */
function openHandlePublisher(
  { context: { flags, closers, log }, connections: { link, marker }, driver: { name } }: DriverDeps,
  { informers, sharing, scanner }: EventSource,
  dependencies: DependencyIndex,
): void {
  const store = redisSharedHandles(link.redis, flags.redisPrefix, name);
  const isRedisOurs = (): boolean => marker.isOurs;
  if (scanner !== undefined)
    closers.add('scans for handles', scanner.serve({ name, store, dependencies, isRedisOurs }));
  if (informers === undefined) return;
  const publisher = new HandlePublisher({ informers, store, isRedisOurs, clock: systemClock, log });
  closers.add('handle publisher', () => publisher.stop());
  const end = sharing.subscribe(() => publisher.changed());
  closers.add('changes of shared handles', end);
}

/** Reports orphans and missing volumes at each interval, if the driver can list its volumes. */
function openAudit({
  context,
  connections,
  driver: { name, controllerCapabilities },
  lease,
  queue,
  pause,
  events,
}: DriverDeps): void {
  const { flags, closers, log, metrics } = context;
  const { kube, gateways, nodeGateways, link } = connections;
  if (flags.auditIntervalMs <= 0 || !controllerCapabilities.has('LIST_VOLUMES')) return;
  const auditing = startPeriodicAudit({
    ports: {
      csi: gateways.anyReplica,
      kube,
      openRecords: () => openRecords(link.redis, flags.redisPrefix, name),
      ledger: redisAuditLedger(link.redis, flags.redisPrefix, name),
      driver: name,
      isReadyNode: nodeGateways && ((node) => nodeGateways.isReady(node)),
      timeoutMs: flags.timeoutMs,
      minAgeMs: flags.auditMinAgeMs,
      nowMs: () => systemClock.nowMs(),
    },
    events,
    regarding: { kind: leases.kind, apiVersion: apiVersionOf(leases), ...lease, uid: '' },
    intervalMs: flags.auditIntervalMs,
    isLeading: () => queue.isAllowing,
    log,
    metrics,
  });
  pause.afterOther.subscribe(() => auditing.runSoon());
  closers.add('audit', () => auditing.stop());
}

import { capacityNamespace } from '../capacity/environment.ts';
import {
  instanceName,
  openConnections,
  type Connections,
} from '../connections/open-connections.ts';
import { Elector } from '../election/elector.ts';
import { KubeLeaseStore } from '../election/kube-lease-store.ts';
import { checkLeaseTimes, leaseName, type LeaseTimes } from '../election/lease.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import { EventRecorder, eventComponent } from '../kube/events.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import { JOB_KINDS } from '../queue/contract.ts';
import { Producer } from '../queue/producer.ts';
import { WaitList } from '../queue/wait-list.ts';
import { redisActiveGateway } from '../records/active-gateway.ts';
import { redisAuditLedger } from '../records/audit-ledger.ts';
import { ownershipMs, quarantineMs } from '../records/flags.ts';
import { redisIncarnationStore } from '../records/incarnation.ts';
import { openJobs } from '../records/open-jobs.ts';
import { openRecords } from '../records/open-records.ts';
import { redisReservedRoom } from '../records/reserved-room.ts';
import { redisSharedHandles } from '../records/shared-handles.ts';
import { systemClock, timerMs } from '../runtime/clock.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { Listeners } from '../runtime/listeners.ts';
import { runProcess, type Invocation, type ProcessContext } from '../runtime/process.ts';
import { startNodeWatch } from '../topology/node-watch.ts';
import { volumeFailedDelete } from '../volumes/deletion-event.ts';
import { inTreeNameOf } from '../volumes/migration/plugins.ts';
import { openCapacity } from './capacity/open-capacity.ts';
import { DemandWatch } from './demand-watch.ts';
import { flags as table, summary } from './flags.ts';
import { ForeignLeader, IDENTITY_PREFIX } from './foreign-leader.ts';
import { GatewayFailover } from './gateway-failover.ts';
import { HandlePublisher } from './handle-publisher.ts';
import { IncarnationCheck } from './incarnation-check.ts';
import { LeaderGate } from './leader-gate.ts';
import { Leadership, type LeaseStatus } from './leadership.ts';
import { leaseIncarnationStore } from './lease-incarnation-store.ts';
import { leaseNamespace } from './lease-namespace.ts';
import { NodeDemand } from './node-demand.ts';
import { NodeWaits } from './node-waits.ts';
import { startPeriodicAudit } from './periodic-audit.ts';
import { Resync } from './resync.ts';
import { shouldSweep, SnapshotSweep } from './snapshot-sweep.ts';
import { WaitWatch } from './wait-watch.ts';
import { Watcher } from './watcher.ts';

type Context = ProcessContext<typeof table>;

/** What the parts of ingest are made of. */
interface Base {
  readonly context: Context;
  readonly connections: Connections;
  readonly driver: DriverInfo;
  /** The driver's Lease. */
  readonly lease: { readonly namespace: string; readonly name: string };
  readonly gate: LeaderGate;
}

/** The ingest process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'ingest', summary, table, start });
}

async function start(context: Context): Promise<void> {
  const { flags, health, stopping } = context;
  const times = checkFlags(context);
  const namespace = await leaseNamespace(flags.leaderElectionNamespace, context.env);
  const connections = await openConnections(context, 'ingest', 'sutler-ingest');
  addFirstChecks(health);
  context.announce(await openHttpEndpoint(context));
  const driver = await connections.driver.waitUntilKnown(stopping);
  if (driver === undefined) return;

  const lease = { namespace, name: leaseName(driver.name) };
  const producer = openProducer(context, connections, driver);
  const gate = new LeaderGate(producer, 2 * times.leaseDurationMs);
  const base = { context, connections, driver, lease, gate };
  const events = openEvents(base);
  const changes = new Listeners<string>();
  const watcher = openWatcher(base, events, changes);
  await watcher.waitForSync(stopping);
  if (stopping.aborted) return;
  openWaits(base, watcher, changes);
  openAudit(base, events);
  openCapacity(context, connections, {
    driver: driver.name,
    gate,
    watcher,
    changes,
    startNodes: (onChange) => {
      const { log, metrics } = context;
      const client = connections.kube;
      return startNodeWatch({ client, driver: driver.name, log, metrics, onChange });
    },
  });
  const resync = openResync(base, watcher);
  const leadership = openLeadership(base, watcher, resync);
  await connections.marker.waitUntilOurs(stopping);
  if (stopping.aborted) return;
  if (flags.leaderElection) competeForLease(base, times, leadership);
  else leadAlways(base, leadership);
}

/** @returns the times of the Lease
 * @throws UsageError for times that can't work together, and a variable that is not set */
function checkFlags({ flags, env }: Context): LeaseTimes {
  if (flags.enableCapacity) capacityNamespace(env);
  const times = {
    leaseDurationMs: flags.leaderElectionLeaseDurationMs,
    renewDeadlineMs: flags.leaderElectionRenewDeadlineMs,
    retryPeriodMs: flags.leaderElectionRetryPeriodMs,
  };
  checkLeaseTimes(times);
  return times;
}

function openProducer(
  { flags, closers, health, log, metrics }: Context,
  { link, redisAccess }: Connections,
  { name: driver }: DriverInfo,
): Producer {
  const { redisUrl, redisPrefix: prefix, enableCapacity } = flags;
  const kinds = enableCapacity ? { kinds: JOB_KINDS } : {};
  const producer = new Producer({ redisUrl, redisAccess, prefix, driver, ...kinds, log, metrics });
  closers.add('producer', () => producer.close());
  health.ready('redis', () => producer.trouble ?? link.trouble ?? link.refusal);
  return producer;
}

function openEvents({ context, connections: { kube }, driver }: Base): EventRecorder {
  const { closers, log, metrics } = context;
  const component = eventComponent(driver.name, context.env);
  const events = new EventRecorder({ client: kube, component, log, metrics });
  closers.add('events', () => events.close(1_000));
  return events;
}

/** Lists and watches; only the leader writes an event for a volume that must not be deleted. */
function openWatcher(base: Base, events: EventRecorder, changes: Listeners<string>): Watcher {
  const { context, connections, driver, gate } = base;
  const { closers, health, log, metrics } = context;
  const watcher: Watcher = new Watcher({
    client: connections.kube,
    driver: { ...driver, inTreeName: inTreeNameOf(driver.name) },
    gate,
    onObject: (object) => changes.notify(object),
    onSharedHandles: () => publisher.changed(),
    onRefused(volume, reason) {
      if (gate.isAllowing) events.record(volumeFailedDelete(volume, reason));
    },
    log,
    metrics,
  });
  closers.add('watcher', () => watcher.stop());
  health.ready('kubernetes', () => watcher.trouble);
  const publisher = openHandlePublisher(base, watcher);
  return watcher;
}

/** Tells the workers which handles several PVs name. */
function openHandlePublisher(
  { context: { flags, closers, log }, connections: { link, marker }, driver }: Base,
  watcher: Watcher,
): HandlePublisher {
  const publisher = new HandlePublisher({
    watcher,
    store: redisSharedHandles(link.redis, flags.redisPrefix, driver.name),
    isRedisOurs: () => marker.isOurs,
    clock: systemClock,
    log,
  });
  closers.add('handle publisher', () => publisher.stop());
  return publisher;
}

/** Promotes parked keys when the object changes that they wait for. */
function openWaits(base: Base, watcher: Watcher, changes: Listeners<string>): void {
  const { context, connections, driver, gate } = base;
  const { kube, link } = connections;
  const { flags, closers, log, metrics } = context;
  const demandWatch = new DemandWatch({
    client: kube,
    watchSecrets: flags.watchSecrets,
    onChange: (object) => changes.notify(object),
    clock: systemClock,
    log,
  });
  closers.add('watch on demand', () => demandWatch.stop());
  const nodeDemand = new NodeDemand({
    start: (onChange) =>
      startNodeWatch({ client: kube, driver: driver.name, log, metrics, onChange }),
    onChange: (object) => changes.notify(object),
    clock: systemClock,
    log,
  });
  closers.add('watch of nodes', () => nodeDemand.stop());
  const nodeWaits = openNodeWaits(base, changes);
  const waitWatch = new WaitWatch({
    waits: new WaitList(link.redis, flags.redisPrefix, driver.name),
    versionOf: (object) =>
      watcher.versionOf(object) ??
      demandWatch.versionOf(object) ??
      nodeDemand.versionOf(object) ??
      nodeWaits?.versionOf(object),
    onWaiting(objects) {
      demandWatch.follow(objects);
      nodeDemand.follow(objects);
      nodeWaits?.follow(objects);
    },
    isLeading: () => gate.isAllowing,
    driver: driver.name,
    clock: systemClock,
    log,
    metrics,
  });
  closers.add('wait watch', () => waitWatch.stop());
  changes.subscribe((object) => waitWatch.changed(object));
}

function openNodeWaits(
  { context: { flags, log }, connections: { nodeGateways, link }, driver }: Base,
  changes: Listeners<string>,
): NodeWaits | undefined {
  if (nodeGateways === undefined) return undefined;
  const place = { prefix: flags.redisPrefix, driver: driver.name };
  return new NodeWaits({
    gateways: nodeGateways,
    room: redisReservedRoom(link.redis, place, 0),
    onChange: (object) => changes.notify(object),
    log,
  });
}

/** Reports orphans at each interval, if the driver can list its volumes. */
function openAudit(
  { context, connections, driver: { name, controllerCapabilities }, lease, gate }: Base,
  events: EventRecorder,
): void {
  const { flags, closers, log, metrics } = context;
  const { kube, gateways, link } = connections;
  if (flags.auditIntervalMs <= 0 || !controllerCapabilities.has('LIST_VOLUMES')) return;
  const auditing = startPeriodicAudit({
    ports: {
      csi: gateways.anyReplica,
      kube,
      openRecords: () => openRecords(link.redis, flags.redisPrefix, name),
      ledger: redisAuditLedger(link.redis, flags.redisPrefix, name),
      driver: name,
      timeoutMs: flags.timeoutMs,
      minAgeMs: flags.auditMinAgeMs,
      nowMs: () => systemClock.nowMs(),
    },
    events,
    regarding: { kind: leases.kind, apiVersion: apiVersionOf(leases), ...lease, uid: '' },
    intervalMs: flags.auditIntervalMs,
    isLeading: () => gate.isAllowing,
    log,
    metrics,
  });
  closers.add('audit', () => auditing.stop());
}

/** Checks that /readyz and /healthz have before their parts are opened. Upstream's liveness probe,
 * too, asks for leader-election from the start, and where --leader-election is false. */
function addFirstChecks(health: Context['health']): void {
  health.ready('kubernetes', () => 'waiting for the driver first');
  health.live('leader-election', () => undefined);
}

/** Resyncs at each interval; leadership.ts says when else. */
function openResync(
  { context, connections: { link }, driver, gate }: Base,
  watcher: Watcher,
): Resync {
  const { flags, closers, log } = context;
  const openJobsOfDriver = () => openJobs(link.redis, flags.redisPrefix, driver.name);
  const resync = new Resync({
    watcher,
    gate,
    openJobs: openJobsOfDriver,
    quarantineMs: quarantineMs(flags),
    clock: systemClock,
    log,
  });
  const timer = setInterval(() => void resync.run('resync'), timerMs(flags.resyncIntervalMs));
  closers.add('resync', () => {
    clearInterval(timer);
    resync.stop();
  });
  return resync;
}

function openLeadership(base: Base, watcher: Watcher, resync: Resync): Leadership {
  const { context, connections, driver, lease, gate } = base;
  const { flags, health, log } = context;
  const { kube, link, marker } = connections;
  const incarnations = redisIncarnationStore(link.redis, flags.redisPrefix, driver.name);
  const store = leaseIncarnationStore({ client: kube, ...lease });
  const incarnation = new IncarnationCheck({
    incarnations,
    store,
    quarantineMs: quarantineMs(flags),
    log,
  });
  health.ready('incarnation', () => (gate.isAllowing ? incarnation.trouble : undefined));
  const leadership = new Leadership({
    driver: driver.name,
    gate,
    resync,
    failover: connections.nodeGateways === undefined ? openFailover(base) : noActiveGateway(base),
    sweep: openSweep(base, watcher),
    incarnation,
    foreignLeader: new ForeignLeader(incarnations, log),
    isRedisOurs: () => marker.isOurs,
    log,
  });
  marker.onChange((isOurs) => isOurs && leadership.resume());
  link.onReady(() => leadership.reconnected());
  return leadership;
}

function openFailover(base: Base): GatewayFailover {
  const { context, connections, driver, gate } = base;
  const { flags, closers, health, log, metrics } = context;
  const failover = new GatewayFailover({
    pool: connections.gateways,
    active: redisActiveGateway(connections.link.redis, flags.redisPrefix, driver.name),
    driver: driver.name,
    timeoutMs: flags.timeoutMs,
    ownershipMs: ownershipMs(flags),
    isLeading: () => gate.isAllowing,
    clock: systemClock,
    log,
    metrics,
  });
  closers.add('gateway failover', () => failover.close());
  health.ready('active-gateway', () => failover.trouble);
  return failover;
}

/** A driver that runs on each node has no active gateway. Removes the name of one that a leader
 * without --node-deployment has named. */
function noActiveGateway({
  context: { flags, log },
  connections: { link },
  driver,
}: Base): Pick<GatewayFailover, 'checkNow'> {
  const active = redisActiveGateway(link.redis, flags.redisPrefix, driver.name);
  const clear = async (): Promise<void> => {
    try {
      const gateway = await active.clear(ownershipMs(flags));
      if (gateway !== undefined)
        log.warn({ gateway }, 'no gateway is the active one any more: every node has its own');
    } catch (error) {
      log.debug({ err: error }, 'could not remove the name of the active gateway; trying again');
      setTimeout(() => void clear(), 1_000).unref();
    }
  };
  return { checkNow: () => void clear() };
}

function openSweep(base: Base, watcher: Watcher): SnapshotSweep | undefined {
  const { context, connections, driver, gate } = base;
  const intervalMs = context.flags.snapshotOrphanSweepIntervalMs;
  if (!shouldSweep(intervalMs, driver.controllerCapabilities)) return undefined;
  const sweep = new SnapshotSweep({
    client: connections.kube,
    restored: () => watcher.restoredSnapshots(),
    ensureQueued: (key) => gate.ensureQueued(key),
    isLeading: () => gate.isAllowing,
    intervalMs,
    log: context.log,
  });
  context.closers.add('snapshot sweep', () => sweep.stop());
  return sweep;
}

/** --leader-election=false: only one ingest of the driver may run. */
const ALWAYS_LEADING: LeaseStatus = { isLeader: true, holder: undefined };

function leadAlways(base: Base, leadership: Leadership): void {
  tickEverySecond(base, leadership, ALWAYS_LEADING);
  leadership.begin(ALWAYS_LEADING);
}

function competeForLease(base: Base, times: LeaseTimes, leadership: Leadership): void {
  const { context, connections, lease, gate } = base;
  const { flags, closers, health, log, metrics } = context;
  const labels = flags.leaderElectionLabels;
  const elector = new Elector({
    store: new KubeLeaseStore({ client: connections.kube, ...lease, labels, log }),
    leaseName: lease.name,
    identity: `${IDENTITY_PREFIX}${instanceName(context)}`,
    ...times,
    clock: systemClock,
    log,
    metrics,
    onStartedLeading: (status) => leadership.begin(status),
    onStoppedLeading: (reason) => leadership.end(reason),
  });
  closers.add('elector', async () => {
    gate.block();
    await elector.close();
  });
  health.live('leader-election', () =>
    elector.isHealthy() ? undefined : 'failed to renew leadership in time',
  );
  health.ready('leader-election', () => elector.trouble);
  tickEverySecond(base, leadership, elector);
}

const TICK_MS = 1_000;

/** Also when Redis can be reached again: after a failover it may lack what was written last. */
function tickEverySecond(
  { context, connections }: Base,
  leadership: Leadership,
  lease: LeaseStatus,
): void {
  const tick = (): void => leadership.tick(lease);
  const timer = setInterval(tick, TICK_MS);
  connections.link.onReady(tick);
  context.closers.add('leadership', () => clearInterval(timer));
}

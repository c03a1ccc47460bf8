import {
  instanceName,
  openConnections,
  type Connections,
} from '../connections/open-connections.ts';
import { startElector } from '../election/elector.ts';
import { kubeLeaseStore } from '../election/kube-lease-store.ts';
import { leaseName, leaseTimesProblem, type LeaseTimes } from '../election/lease.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import { createEventRecorder, eventComponent, type EventRecorder } from '../kube/events.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import { Producer } from '../queue/producer.ts';
import { WaitList } from '../queue/wait-list.ts';
import { redisActiveGateway } from '../records/active-gateway.ts';
import { redisAuditLedger } from '../records/audit-ledger.ts';
import { ownershipMs } from '../records/flags.ts';
import { redisIncarnationStore } from '../records/incarnation.ts';
import { openJobs } from '../records/open-jobs.ts';
import { openRecords } from '../records/open-records.ts';
import { systemClock, timerMs } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { Listeners } from '../runtime/listeners.ts';
import { runProcess, type Invocation, type ProcessContext } from '../runtime/process.ts';
import { volumeFailedDelete } from '../volumes/deletion-event.ts';
import { inTreeNameOf } from '../volumes/migration/plugins.ts';
import { startDemandWatch } from './demand-watch.ts';
import { flags as table, summary } from './flags.ts';
import { ForeignLeader, IDENTITY_PREFIX } from './foreign-leader.ts';
import { startGatewayFailover, type GatewayFailover } from './gateway-failover.ts';
import { IncarnationCheck } from './incarnation-check.ts';
import { LeaderGate } from './leader-gate.ts';
import { Leadership, type LeaseView } from './leadership.ts';
import { leaseIncarnationStore } from './lease-incarnation-store.ts';
import { leaseNamespace } from './lease-namespace.ts';
import { startPeriodicAudit } from './periodic-audit.ts';
import { Resync } from './resync.ts';
import { startSnapshotSweep, type SnapshotSweep } from './snapshot-sweep.ts';
import { startWaitWatch } from './wait-watch.ts';
import { startWatcher, type RefusedVolume, type Watcher } from './watcher.ts';

type Context = ProcessContext<typeof table>;

/** What the parts of ingest are made of. */
interface Base {
  readonly context: Context;
  readonly connections: Connections;
  readonly driver: DriverInfo;
  /** The driver's Lease. */
  readonly lease: { readonly namespace: string; readonly name: string };
}

/** The ingest process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'ingest', summary, table, start });
}

async function start(context: Context): Promise<void> {
  const { flags, health, stopping } = context;
  const times = leaseTimes(flags);
  const namespace = await leaseNamespace(flags.leaderElectionNamespace, context.env);
  const connections = await openConnections(context, 'ingest', 'sutler-ingest');
  health.ready('kubernetes', () => 'waiting for the driver first');
  context.announce(await openHttpEndpoint(context));
  const driver = await connections.driver.known(stopping);
  if (driver === undefined) return;

  const base = { context, connections, driver, lease: { namespace, name: leaseName(driver.name) } };
  const producer = openProducer(base);
  const gate = new LeaderGate(producer, { keepMs: 2 * times.leaseDurationMs });
  const events = openEvents(base);
  const onRefused = createRefusalReporter(gate, events);
  const changes = new Listeners<string>();
  const watcher = await openWatcher(base, { gate, changes, onRefused });
  if (watcher === undefined) return;
  openWaits(base, { gate, watcher, changes });
  openAudit(base, { gate, events });
  const resync = openResync(base, { watcher, gate, producer, onRefused });
  const leadership = openLeadership(base, { gate, resync, watcher });
  await connections.marker.ours(stopping);
  if (stopping.aborted) return;
  connections.marker.onChange((isOurs) => isOurs && leadership.resume());
  if (flags.leaderElection) competeForLease(base, { times, leadership, gate });
  else leadAlways(base, leadership);
}

/** @throws UsageError for times that can't work together */
function leaseTimes(flags: Context['flags']): LeaseTimes {
  const times = {
    leaseDurationMs: flags.leaderElectionLeaseDurationMs,
    renewDeadlineMs: flags.leaderElectionRenewDeadlineMs,
    retryPeriodMs: flags.leaderElectionRetryPeriodMs,
  };
  const problem = leaseTimesProblem(times);
  if (problem !== undefined) throw new UsageError(problem);
  return times;
}

function openProducer({ context, connections: { link }, driver }: Base): Producer {
  const { flags, closers, health, log, metrics } = context;
  const { redisUrl, redisPrefix: prefix } = flags;
  const producer = new Producer({ redisUrl, prefix, driver: driver.name, log, metrics });
  closers.add('producer', () => producer.close());
  health.ready('redis', () => producer.trouble ?? link.trouble);
  return producer;
}

function openEvents({ context, connections: { kube }, driver }: Base): EventRecorder {
  const { closers, log, metrics } = context;
  const component = eventComponent(driver.name, context.env);
  const events = createEventRecorder({ client: kube, component, log, metrics });
  closers.add('events', () => events.close(1_000));
  return events;
}

/** Tells of volumes that should be deleted and must not be; only the leader does. */
function createRefusalReporter(
  gate: LeaderGate,
  events: EventRecorder,
): (refused: RefusedVolume) => void {
  return ({ volume, reason }) => {
    if (gate.isAllowing) events.record(volumeFailedDelete(volume, reason));
  };
}

/** @returns undefined when the process is stopped before the first lists are complete */
async function openWatcher(
  { context, connections: { kube }, driver }: Base,
  parts: {
    readonly gate: LeaderGate;
    readonly changes: Listeners<string>;
    readonly onRefused: (refused: RefusedVolume) => void;
  },
): Promise<Watcher | undefined> {
  const { closers, health, log, metrics, stopping } = context;
  const watcher = startWatcher({
    client: kube,
    driver: { ...driver, inTreeName: inTreeNameOf(driver.name) },
    gate: parts.gate,
    onObject: (object) => parts.changes.tell(object),
    onRefused: parts.onRefused,
    log,
    metrics,
  });
  closers.add('watcher', () => watcher.stop());
  health.ready('kubernetes', () => watcher.trouble);
  try {
    await watcher.synced(stopping);
  } catch (error) {
    if (!stopping.aborted) throw error;
    return undefined;
  }
  return watcher;
}

/** Promotes parked keys when the object changes that they wait for. */
function openWaits(
  { context, connections: { kube, link }, driver }: Base,
  parts: {
    readonly gate: LeaderGate;
    readonly watcher: Watcher;
    readonly changes: Listeners<string>;
  },
): void {
  const { flags, closers, log, metrics } = context;
  const { gate, watcher, changes } = parts;
  const demandWatch = startDemandWatch({
    client: kube,
    watchSecrets: flags.watchSecrets,
    onChange: (object) => changes.tell(object),
    clock: systemClock,
    log,
  });
  closers.add('watch on demand', () => demandWatch.stop());
  const waitWatch = startWaitWatch({
    waits: new WaitList(link.redis, flags.redisPrefix, driver.name),
    versionOf: (object) => watcher.versionOf(object) ?? demandWatch.versionOf(object),
    onWaiting: (objects) => demandWatch.follow(objects),
    isLeading: () => gate.isAllowing,
    driver: driver.name,
    clock: systemClock,
    log,
    metrics,
  });
  closers.add('wait watch', () => waitWatch.stop());
  changes.subscribe((object) => waitWatch.changed(object));
}

function openAudit(
  { context, connections, driver, lease }: Base,
  parts: { readonly gate: LeaderGate; readonly events: EventRecorder },
): void {
  const { flags, closers, log, metrics } = context;
  const { kube, gateways, link } = connections;
  if (flags.auditIntervalMs <= 0 || !driver.controllerCapabilities.has('LIST_VOLUMES')) return;
  const auditing = startPeriodicAudit({
    ports: {
      csi: gateways.asks,
      kube,
      openRecords: () => openRecords(link.redis, flags.redisPrefix, driver.name),
      ledger: redisAuditLedger(link.redis, flags.redisPrefix, driver.name),
      driver: driver.name,
      timeoutMs: flags.timeoutMs,
      minAgeMs: flags.auditMinAgeMs,
      nowMs: () => systemClock.nowMs(),
    },
    events: parts.events,
    regarding: { kind: leases.kind, apiVersion: apiVersionOf(leases), ...lease, uid: '' },
    intervalMs: flags.auditIntervalMs,
    isLeading: () => parts.gate.isAllowing,
    log,
    metrics,
  });
  closers.add('audit', () => auditing.stop());
}

/** Resyncs at each interval and when Redis comes back. */
function openResync(
  { context, connections: { link }, driver }: Base,
  parts: {
    readonly watcher: Watcher;
    readonly gate: LeaderGate;
    readonly producer: Producer;
    readonly onRefused: (refused: RefusedVolume) => void;
  },
): Resync {
  const { flags, closers, log } = context;
  const { watcher, gate, producer, onRefused } = parts;
  const openJobsOfDriver = () => openJobs(link.redis, flags.redisPrefix, driver.name);
  const resync = new Resync({ watcher, gate, openJobs: openJobsOfDriver, onRefused, log });
  producer.onRedisBack((reason) => producer.resync(resync.outstanding(), reason));
  link.onReady((isFirst) => !isFirst && void resync.run('Redis came back'));
  const timer = setInterval(() => void resync.run('resync'), timerMs(flags.resyncIntervalMs));
  closers.add('resync', () => clearInterval(timer));
  return resync;
}

function openFailover(
  { context, connections: { gateways, link }, driver }: Base,
  gate: LeaderGate,
): GatewayFailover {
  const { flags, closers, health, log, metrics } = context;
  const failover = startGatewayFailover({
    pool: gateways,
    active: redisActiveGateway(link.redis, flags.redisPrefix, driver.name),
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

function openSweep(
  { context, connections: { kube }, driver }: Base,
  parts: { readonly watcher: Watcher; readonly gate: LeaderGate },
): SnapshotSweep | undefined {
  const { flags, closers, log } = context;
  const { watcher, gate } = parts;
  const sweep = startSnapshotSweep({
    client: kube,
    restored: () => watcher.restoredSnapshots(),
    ensureQueued: (key) => gate.ensureQueued(key),
    isLeading: () => gate.isAllowing,
    driver,
    intervalMs: flags.snapshotOrphanSweepIntervalMs,
    log,
  });
  closers.add('snapshot sweep', () => sweep?.stop());
  return sweep;
}

function openLeadership(
  base: Base,
  parts: {
    readonly gate: LeaderGate;
    readonly resync: Resync;
    readonly watcher: Watcher;
  },
): Leadership {
  const { context, connections, driver, lease } = base;
  const { gate, resync, watcher } = parts;
  const { flags, log } = context;
  const { kube, link, marker } = connections;
  const incarnations = redisIncarnationStore(link.redis, flags.redisPrefix, driver.name);
  const store = leaseIncarnationStore({ client: kube, ...lease });
  return new Leadership({
    driver: driver.name,
    gate,
    resync,
    failover: openFailover(base, gate),
    sweep: openSweep(base, { watcher, gate }),
    incarnation: new IncarnationCheck({
      incarnations,
      store,
      ownershipMs: ownershipMs(flags),
      log,
    }),
    foreignLeader: new ForeignLeader(incarnations, log),
    isRedisOurs: () => marker.isOurs,
    log,
  });
}

/** --leader-election=false: only one ingest of the driver may run. */
const ALWAYS_LEADING: LeaseView = { isLeader: true, holder: undefined };

function leadAlways(base: Base, leadership: Leadership): void {
  tickEverySecond(base, leadership, ALWAYS_LEADING);
  leadership.begin(ALWAYS_LEADING);
}

const TICK_MS = 1_000;

function tickEverySecond({ context }: Base, leadership: Leadership, lease: LeaseView): void {
  const timer = setInterval(() => leadership.tick(lease), TICK_MS);
  context.closers.add('leadership', () => clearInterval(timer));
}

function competeForLease(
  base: Base,
  parts: {
    readonly times: LeaseTimes;
    readonly leadership: Leadership;
    readonly gate: LeaderGate;
  },
): void {
  const { context, connections, lease } = base;
  const { flags, closers, health, log, metrics } = context;
  const labels = flags.leaderElectionLabels;
  const elector = startElector({
    store: kubeLeaseStore({ client: connections.kube, ...lease, labels, log }),
    leaseName: lease.name,
    identity: `${IDENTITY_PREFIX}${instanceName(context)}`,
    ...parts.times,
    clock: systemClock,
    log,
    metrics,
    onStartedLeading: (view) => parts.leadership.begin(view),
    onStoppedLeading: (reason) => parts.leadership.end(reason),
  });
  closers.add('elector', async () => {
    parts.gate.block();
    await elector.close();
  });
  health.live('leader-election', () =>
    elector.isHealthy() ? undefined : 'failed to renew leadership in time',
  );
  tickEverySecond(base, parts.leadership, elector);
}

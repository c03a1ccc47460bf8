import { redisAuditLedger } from '../audit/audit.ts';
import { startPeriodicAudit } from '../audit/periodic-audit.ts';
import { capacityPlace } from '../capacity/flags.ts';
import { startCapacity } from '../capacity/start-capacity.ts';
import type { DriverConnections } from '../connections/open-connections.ts';
import { checkLeaseTimes, leaseName, type LeaseTimes } from '../election/lease.ts';
import type { OwnLeader } from '../election/own-leader.ts';
import { doubtMsOf, leaseNamespace } from '../election/flags.ts';
import type { PendingEntry } from '../explain/pending-index.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import { eventComponent, EventRecorder } from '../kube/events.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { readOpenCreations } from '../hints/open-creations.ts';
import { redisSharedHandles } from '../hints/shared-handles.ts';
import { systemClock } from '../runtime/clock.ts';
import { type JournalPlace, listOpenSources } from '../journal/list-journal.ts';
import { Listeners } from '../runtime/listeners.ts';
import { classNameOf } from '../volumes/eligibility.ts';
import type { Context, DriverDeps } from './driver-deps.ts';
import { openElection } from './election.ts';
import { resyncMs } from './flags.ts';
import { openFailover } from './gateway-failover.ts';
import { HandlePublisher } from './handle-publisher.ts';
import { EventHandler } from './objects/event-handler.ts';
import { Informers } from './objects/informers.ts';
import type { ObjectSource } from './objects/object-source.ts';
import { Leadership } from './leadership.ts';
import { LeaderOnlyQueue } from './leader-only-queue.ts';
import { classWarner, writeLimits } from './limits.ts';
import { lookAgain, openWork, type Work } from './open-work.ts';
import { PendingReport } from './pending-report.ts';
import { ProvisioningPause } from './provisioning-pause.ts';
import { Resync } from './resync.ts';
import { shouldSweep, SnapshotSweep } from './snapshot-sweep.ts';
import { Waits } from './waits.ts';

/** What all drivers of an ingest process share, beside its connections. */
export interface Shared {
  /** The objects of all drivers. It begins at the first call. */
  readonly objectSource: () => ObjectSource;
  /** Set where jobs is the same process, and Redis its own. */
  readonly ownLeader?: OwnLeader | undefined;
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

  const source = shared.objectSource();
  const lease = { namespace, name: leaseName(driver.name) };
  const { ownLeader } = shared;
  let handler: EventHandler | undefined;
  let leadership: Leadership | undefined;
  const work = openWork(context, connections, {
    driver: driver.name,
    lease,
    source,
    ownNode: ownLeader?.node,
    onMayNeedAgain: (key) => handler && void lookAgain(key, handler, connections.kube, context),
    onOutdated: () => leadership?.outdated(),
  });
  const queue = new LeaderOnlyQueue(work.dispatcher, 2 * times.leaseDurationMs);
  const classChanges = new Listeners<void>();
  const pause = openPause(context);
  const events = openEvents(context, connections, driver);
  const parts = { context, connections, driver, lease, queue };
  const deps = { ...parts, pause, events, classChanges, ownLeader };
  handler = await serveDriver(deps, source);
  if (stopping.aborted) return;
  openAudit(deps);
  openCapacity(deps, source);
  openWaits(deps, source);
  leadership = openLeadership(deps, work, handler, source);
  openPendingReport(deps, openElection(deps, times, leadership), function* () {
    yield* handler.pending(source.unfinished());
    yield* vanishedEntries(work.journal, source, doubtMsOf(context.flags) + VANISHED_EXTRA_MS);
  });
}

/** Makes what this process does while it leads. */
function openLeadership(
  deps: DriverDeps,
  { dispatcher, journal, queue: work, link, place }: Work,
  handler: EventHandler,
  source: ObjectSource,
): Leadership {
  const { context, connections, driver, lease, queue, pause, classChanges, ownLeader } = deps;
  const { flags, closers, health, log } = context;
  const warn = classWarner(deps, source);
  classChanges.subscribe(warn);
  const resync = new Resync({
    outstanding: () => handler.outstanding(source),
    queue,
    entries: () => dispatcher.entries(),
    intervalMs: resyncMs(flags),
    clock: systemClock,
    log,
  });
  const leadership = new Leadership({
    driver: driver.name,
    namespace: lease.namespace,
    place,
    link,
    queue,
    journal,
    dispatcher,
    work,
    resync,
    pause,
    failover: openFailover(deps),
    sweep: openSweep(deps, source),
    ownLeader,
    writeLimits: () => writeLimits(deps),
    onBegun: warn,
    serves: connections.serves,
    driverTrouble: () => connections.driver.trouble,
    log,
  });
  health.ready('leader', () => leadership.trouble);
  const ends = [
    link.onReady(() => leadership.reconnected()),
    source.missed.subscribe(() => leadership.changesMissed()),
  ];
  closers.add('leading', () => {
    for (const end of ends) end();
    resync.stop();
    connections.serves.delete(driver.name);
  });
  return leadership;
}

function openSweep(deps: DriverDeps, source: ObjectSource): SnapshotSweep | undefined {
  const { context, connections, driver, queue } = deps;
  const intervalMs = context.flags.snapshotOrphanSweepIntervalMs;
  if (!shouldSweep(intervalMs, driver.controllerCapabilities)) return undefined;
  const sweep = new SnapshotSweep({
    client: connections.kube,
    claims: (isWanted) => source.claims(isWanted),
    openSources: () => listOpenSources(connections.kube, journalOf(deps)),
    isLeading: () => queue.isAllowing,
    intervalMs,
    log: context.log,
  });
  context.closers.add('snapshot sweep', () => sweep.stop());
  return sweep;
}

/** Where the driver's journal is. */
function journalOf({ driver: { name }, lease, ownLeader }: DriverDeps): JournalPlace {
  const { namespace, name: ofDriver } = lease;
  return { namespace, lease: ofDriver, driver: name, node: ownLeader?.node };
}

/** A claim whose doubt is over is finished soon after, unless it can't be planned any more. */
const VANISHED_EXTRA_MS = 30_000;

/** Claims in the journal that are gone, and whose jobs do not end. */
function* vanishedEntries(
  journal: Work['journal'],
  source: ObjectSource,
  olderThanMs: number,
): Generator<PendingEntry> {
  const known = new Set([...source.unfinished().claims].map(({ metadata }) => metadata.uid));
  for (const { uid, claim } of journal.unfinished(olderThanMs)) {
    if (known.has(uid)) continue;
    const { namespace = '', name } = claim.metadata;
    const key = { kind: 'claim', uid, namespace, name } as const;
    yield { key, className: classNameOf(claim), sinceMs: NaN, why: '' };
  }
}

/** Tells people what waits. */
function openPendingReport(
  { context, connections: { link }, driver, queue, events }: DriverDeps,
  whyNoLeader: () => string | undefined,
  pending: () => Iterable<PendingEntry>,
): void {
  const { flags, closers, log, metrics } = context;
  const report = new PendingReport({
    pending,
    isLeading: () => queue.isAllowing,
    whyNoLeader,
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

/** Begins to serve the driver. Resolves when all its objects are known. */
async function serveDriver(deps: DriverDeps, source: ObjectSource): Promise<EventHandler> {
  const { context, driver: info, queue, classChanges, ownLeader } = deps;
  const { closers, log, stopping } = context;
  if (source instanceof Informers) {
    ownLeader?.showClaims((key) => source.freshClaim(key));
    openHandlePublisher(deps, source);
  }
  const driver = { ...info, inTreeName: inTreeNameOf(info.name), ownNode: ownLeader?.node };
  const handler = new EventHandler({ driver, queue, lookups: source, log });
  const serving = source.serve({ handler, onClassChange: () => classChanges.notify() });
  closers.add('objects of the driver', () => serving.stop());
  await serving.waitForSync(stopping);
  return handler;
}

function openCapacity(
  { context, connections, driver, queue, classChanges, ownLeader }: DriverDeps,
  source: ObjectSource,
): void {
  startCapacity(context, connections, {
    driver: driver.name,
    ownNode: ownLeader?.node,
    classes: () => source.classes(),
    isLeading: () => queue.isAllowing,
    onClassChange: (listener) => classChanges.subscribe(listener),
  });
}

/** @throws UsageError for times that can't work together, and a variable that is not set */
export function checkFlags(context: Pick<Context, 'flags' | 'env'>): void {
  capacityPlace(context.flags, context.env);
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

/** Follows whether new work is started, and says so in /readyz while none is. */
function openPause({ health, log }: Context): ProvisioningPause {
  const pause = new ProvisioningPause(log);
  health.note('drain', () => pause.note);
  return pause;
}

/** Runs keys when the objects that they wait for change. */
function openWaits(deps: DriverDeps, source: ObjectSource): void {
  const { context, connections, driver, queue, pause, classChanges, ownLeader } = deps;
  const { flags, closers, log, metrics } = context;
  const waits = new Waits({
    redis: connections.link.redis,
    prefix: flags.redisPrefix,
    driver: driver.name,
    client: connections.kube,
    ownNode: ownLeader?.node,
    isLeading: () => queue.isAllowing,
    promote: (key) => queue.promote(key),
    classVersion: (name) => source.classOf(name)?.metadata.resourceVersion ?? '',
    isNewWorkAllowed: () => pause.isNewWorkAllowed,
    log,
    metrics,
  });
  for (const changes of [pause.allowed, classChanges]) changes.subscribe(() => waits.lookNow());
  closers.add('waits', () => waits.stop());
}

/** Tells the workers which handles several PVs name, where PVs are watched. */
function openHandlePublisher(
  { context: { flags, closers, log }, connections: { link }, driver: { name }, queue }: DriverDeps,
  informers: Informers,
): void {
  const store = redisSharedHandles({ redis: link.redis, prefix: flags.redisPrefix, driver: name });
  const isLeading = (): boolean => queue.isAllowing;
  const publisher = new HandlePublisher({ informers, store, isLeading, clock: systemClock, log });
  closers.add('handle publisher', () => publisher.stop());
  const end = informers.sharing.subscribe(() => publisher.changed());
  closers.add('changes of shared handles', end);
}

/** Reports orphans and missing volumes at each interval, if the driver can list its volumes. */
function openAudit(deps: DriverDeps): void {
  const { context, connections, lease, queue, pause, events, ownLeader } = deps;
  const { name, controllerCapabilities } = deps.driver;
  const { flags, closers, log, metrics } = context;
  const { kube, gateways, link } = connections;
  const place = { redis: link.redis, prefix: flags.redisPrefix, driver: name };
  if (flags.auditIntervalMs <= 0 || !controllerCapabilities.has('LIST_VOLUMES')) return;
  const auditing = startPeriodicAudit({
    ports: {
      csi: gateways,
      kube,
      openCreations: () => readOpenCreations(kube, journalOf(deps), place, systemClock.nowMs()),
      ledger: redisAuditLedger(place),
      driver: name,
      ownNode: ownLeader?.node,
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

import { redisAuditLedger } from '../audit/audit.ts';
import { startPeriodicAudit } from '../audit/periodic-audit.ts';
import { capacityPlace } from '../capacity/flags.ts';
import { startCapacity } from '../capacity/start-capacity.ts';
import type { DriverConnections } from '../connections/open-connections.ts';
import { checkLeaseTimes, leaseName, type LeaseTimes } from '../election/lease.ts';
import type { OwnLeader } from '../election/own-leader.ts';
import { doubtMsOf, leaseNamespace } from '../election/flags.ts';
import type { PendingEntry } from '../explain/pending-index.ts';
import { eventComponent, EventRecorder } from '../kube/events.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { readOpenCreations } from '../hints/open-creations.ts';
import { redisSharedHandles } from '../hints/shared-handles.ts';
import { systemClock } from '../runtime/clock.ts';
import { listOpenSources } from '../journal/list-journal.ts';
import { Listeners } from '../runtime/listeners.ts';
import { classNameOf } from '../volumes/eligibility.ts';
import type { Context, DriverBase, DriverDeps } from './driver-deps.ts';
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

/** Starts ingest's parts for one driver, as soon as the driver is known. Resolves when this process
 * competes for the Lease, or when the context's signal aborts.
 * @param openSource  opens the source of all drivers' objects at the first call
 * @param ownLeader   set if jobs runs in this process and Redis is its own */
export async function startDriver(
  context: Context,
  connections: DriverConnections,
  openSource: () => ObjectSource,
  ownLeader?: OwnLeader,
): Promise<void> {
  const { flags, stopping } = context;
  const times = leaseTimes(context);
  const namespace = await leaseNamespace(flags.leaderElectionNamespace, context.env);
  const driver = await connections.driver.waitUntilKnown(stopping);
  if (driver === undefined) return;

  const { name } = driver;
  const source = openSource();
  const place = { redis: connections.link.redis, prefix: flags.redisPrefix, driver: name };
  const journal = { namespace, lease: leaseName(name), driver: name, node: ownLeader?.node };
  const base = { context, connections, driver, place, journal, source, ownLeader };
  let handler: EventHandler | undefined;
  let leadership: Leadership | undefined;
  const work = openWork(
    base,
    (key) => handler && void lookAgain(key, handler, connections.kube, context),
    () => leadership?.outdated(),
  );
  const queue = new LeaderOnlyQueue(work.dispatcher, 2 * times.leaseDurationMs);
  const pause = openPause(context);
  const isLeading = (): boolean => queue.isAllowing;
  const classChanges = new Listeners<void>();
  const deps = { ...base, queue, isLeading, pause, events: openEvents(base), classChanges };
  handler = await serveDriver(deps);
  if (stopping.aborted) return;
  openAudit(deps);
  openCapacity(deps);
  openWaits(deps);
  leadership = openLeadership(deps, work, handler);
  openPendingReport(deps, openElection(deps, times, leadership), handler, work);
}

/** Makes the tasks of a leader. */
function openLeadership(deps: DriverDeps, work: Work, handler: EventHandler): Leadership {
  const { context, connections, journal, place, source, queue, pause, ownLeader } = deps;
  const { flags, closers, health, log } = context;
  const { dispatcher, link } = work;
  const failover = openFailover(deps);
  const warn = classWarner(deps);
  deps.classChanges.subscribe(warn);
  const resync = new Resync({
    outstanding: () => handler.outstanding(),
    queue,
    entries: () => dispatcher.entries(),
    intervalMs: resyncMs(flags),
    clock: systemClock,
    log,
  });
  const leadership = new Leadership({
    ...work,
    namespace: journal.namespace,
    queue,
    resync,
    pause,
    sweep: openSweep(deps),
    ownLeader,
    prepare: async () => {
      await writeLimits(deps);
      failover.checkNow();
      warn();
    },
    serves: connections.serves,
    driverTrouble: () => connections.driver.trouble,
    log,
  });
  health.ready('leader', () => leadership.trouble);
  const ends = [
    link.onReady(() => leadership.request('Redis can be reached again')),
    source.missed.subscribe(() => leadership.request('changes may have been missed')),
  ];
  closers.add('leading', () => {
    for (const end of ends) end();
    resync.stop();
    connections.serves.delete(place.driver);
  });
  return leadership;
}

function openSweep({
  context,
  connections: { kube },
  driver,
  journal,
  source,
  isLeading,
}: DriverDeps): SnapshotSweep | undefined {
  const intervalMs = context.flags.snapshotOrphanSweepIntervalMs;
  if (!shouldSweep(intervalMs, driver.controllerCapabilities)) return undefined;
  const sweep = new SnapshotSweep({
    client: kube,
    claims: (isWanted) => source.claims(isWanted),
    openSources: () => listOpenSources(kube, journal),
    isLeading,
    intervalMs,
    log: context.log,
  });
  context.closers.add('snapshot sweep', () => sweep.stop());
  return sweep;
}

/** Vanished claims that stay this long after their doubt are reported. Most are done sooner. */
const VANISHED_EXTRA_MS = 30_000;

/** Reports what waits. */
function openPendingReport(
  deps: DriverDeps,
  whyNoLeader: () => string | undefined,
  handler: EventHandler,
  { journal }: Work,
): void {
  const { flags, closers } = deps.context;
  const vanishedMs = doubtMsOf(flags) + VANISHED_EXTRA_MS;
  const report = new PendingReport(deps, whyNoLeader, function* () {
    yield* handler.pending();
    yield* vanishedEntries(journal, deps.source, vanishedMs);
  });
  closers.add('report of what waits', () => report.stop());
}

/** Vanished claims whose jobs do not end. */
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

/** Begins to serve the driver. Resolves when all its objects are known. */
async function serveDriver(deps: DriverDeps): Promise<EventHandler> {
  const { context, driver: info, source, queue, classChanges, ownLeader } = deps;
  const { closers, log, stopping } = context;
  if (source instanceof Informers) {
    if (ownLeader !== undefined) ownLeader.freshClaim = (key) => source.freshClaim(key);
    openHandlePublisher(deps, source);
  }
  const driver = { ...info, inTreeName: inTreeNameOf(info.name), ownNode: ownLeader?.node };
  const handler = new EventHandler(driver, queue, source, log);
  const serving = source.serve(handler, () => classChanges.notify());
  closers.add('objects of the driver', () => serving.stop());
  await serving.waitForSync(stopping);
  return handler;
}

function openCapacity(deps: DriverDeps): void {
  const { context, connections, driver, source, isLeading, classChanges, ownLeader } = deps;
  startCapacity(context, connections, {
    driver: driver.name,
    ownNode: ownLeader?.node,
    classes: () => source.classes(),
    isLeading,
    onClassChange: (listener) => classChanges.subscribe(listener),
  });
}

/** @throws UsageError if the Lease's times don't fit together, or a variable is not set */
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

/** Adds the checks that must exist before their parts are opened. The liveness probe of upstream's
 * manifests asks for leader-election from the start, also with --leader-election=false. */
export function addFirstChecks(health: Context['health']): void {
  health.live('leader-election', () => undefined);
}

function openEvents({ context, connections, driver }: DriverBase): EventRecorder {
  const { env, closers, log, metrics } = context;
  const component = eventComponent(driver.name, env);
  const events = new EventRecorder({ client: connections.kube, component, log, metrics });
  closers.add('events', () => events.close(1_000));
  return events;
}

/** Follows whether new work is allowed, and shows a drain in /readyz. */
function openPause({ health, log }: Context): ProvisioningPause {
  const pause = new ProvisioningPause(log);
  health.note('drain', () => pause.note);
  return pause;
}

/** Runs keys when the objects that they wait for change. */
function openWaits(deps: DriverDeps): void {
  const { context, connections, place, source, queue, pause, classChanges, ownLeader } = deps;
  const { closers, log, metrics } = context;
  const { kube: client } = connections;
  const ownNode = ownLeader?.node;
  const waits = new Waits({ ...place, client, ownNode, queue, source, pause, log, metrics });
  for (const changes of [pause.allowed, classChanges]) changes.subscribe(() => waits.lookNow());
  closers.add('waits', () => waits.stop());
}

/** Publishes the shared handles to the workers; needs a watch of PVs. */
function openHandlePublisher({ context, place, isLeading }: DriverDeps, informers: Informers) {
  const { closers, log } = context;
  const publisher = new HandlePublisher(informers, redisSharedHandles(place), { isLeading, log });
  closers.add('handle publisher', () => publisher.stop());
}

/** Reports orphans and missing volumes at each interval, if the driver can list its volumes. */
function openAudit(deps: DriverDeps): void {
  const { context, connections, driver, place, journal, isLeading, pause, events } = deps;
  const { flags, closers, log, metrics } = context;
  const { kube, gateways } = connections;
  const { namespace, lease, node } = journal;
  if (flags.auditIntervalMs <= 0 || !driver.controllerCapabilities.has('LIST_VOLUMES')) return;
  const auditing = startPeriodicAudit({
    ports: {
      csi: gateways,
      kube,
      openCreations: () => readOpenCreations(kube, journal, place, systemClock.nowMs()),
      ledger: redisAuditLedger(place),
      driver: driver.name,
      ownNode: node,
      timeoutMs: flags.timeoutMs,
      minAgeMs: flags.auditMinAgeMs,
      nowMs: () => systemClock.nowMs(),
    },
    events,
    regarding: {
      kind: leases.kind,
      apiVersion: apiVersionOf(leases),
      namespace,
      name: lease,
      uid: '',
    },
    intervalMs: flags.auditIntervalMs,
    isLeading,
    log,
    metrics,
  });
  pause.afterOther.subscribe(() => auditing.runSoon());
  closers.add('audit', () => auditing.stop());
}

import { redisAuditLedger } from '../audit/audit.ts';
import { startPeriodicAudit } from '../audit/periodic-audit.ts';
import { capacityNamespace } from '../capacity/flags.ts';
import type { DriverConnections } from '../connections/connect-driver.ts';
import { checkLeaseTimes, leaseName, type LeaseTimes } from '../election/lease.ts';
import { leaseNamespace } from '../election/lease-namespace.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import { eventComponent, EventRecorder } from '../kube/events.ts';
import { apiVersionOf, classes, leases } from '../kube/resources.ts';
import { JOB_KINDS } from '../queue/contract.ts';
import type { ProducerConnection } from '../queue/connections.ts';
import { Producer } from '../queue/producer.ts';
import { parseObjectId } from '../queue/dependency-index.ts';
import { quarantineMs } from '../records/flags.ts';
import { openJobs, openRecords } from '../records/open-records.ts';
import { systemClock, timerMs } from '../runtime/clock.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Context, DriverDeps, Shared } from './driver-deps.ts';
import { startRefresher } from '../capacity/start-refresher.ts';
import type { EventSource } from './event-source.ts';
import { chooseResyncMs } from './notices/flags.ts';
import { LeaderOnlyQueue } from './leader-only-queue.ts';
import type { Leadership } from './leadership.ts';
import { ProvisioningPause } from './provisioning-pause.ts';
import type { DriverObjects } from './objects/object-source.ts';
import { openElection } from './open-election.ts';
import { openLeadership } from './open-leadership.ts';
import { openDriverObjects } from './open-objects.ts';
import { openLimits } from './open-limits.ts';
import { openWaits } from './open-waits.ts';
import { Resync } from './resync.ts';

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

  const lease = { namespace, name: leaseName(driver.name) };
  const queue = new LeaderOnlyQueue(
    openProducer(context, shared.producerConnection, driver),
    2 * times.leaseDurationMs,
  );
  const changes = new Listeners<string>();
  const pause = openPause(context, changes);
  const base = { context, connections, driver, lease, queue, pause };
  const events = openEvents(base);
  const eventSource = shared.eventSource();
  const objects = openDriverObjects(base, eventSource, { events, changes });
  await objects.waitForSync(stopping);
  if (stopping.aborted) return;
  openWaits(base, objects, changes);
  openAudit(base, events);
  openLimits(base);
  startRefresher(context, connections, {
    driver: driver.name,
    classes: () => objects.classes(),
    queue,
    onClassChange: (listener) =>
      changes.subscribe((object) => {
        if (parseObjectId(object).resource === classes.plural) listener();
      }),
  });
  const resync = openResync(base, objects);
  const leadership = openLeadership(base, objects, resync);
  reportLosses(context, eventSource, leadership);
  await connections.marker.waitUntilOurs(stopping);
  if (stopping.aborted) return;
  openElection(base, times, leadership);
}

/** Tells the leadership when hints were lost. */
function reportLosses(
  { closers }: Context,
  { reader }: EventSource,
  leadership: Pick<Leadership, 'hintsLost'>,
): void {
  const end = reader?.onLoss(() => leadership.hintsLost());
  if (end !== undefined) closers.add('reports of lost hints', end);
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

function openProducer(
  { flags, closers, log, metrics }: Context,
  connection: ProducerConnection,
  { name: driver }: DriverInfo,
): Producer {
  const { redisPrefix: prefix, enableCapacity } = flags;
  const kinds = enableCapacity ? { kinds: JOB_KINDS } : {};
  const producer = new Producer({ connection, prefix, driver, ...kinds, log, metrics });
  closers.add('producer', () => producer.close());
  return producer;
}

function openEvents({ context, connections: { kube }, driver }: DriverDeps): EventRecorder {
  const { closers, log, metrics } = context;
  const component = eventComponent(driver.name, context.env);
  const events = new EventRecorder({ client: kube, component, log, metrics });
  closers.add('events', () => events.close(1_000));
  return events;
}

/** Resyncs at each interval; leadership.ts says when else. */
function openResync(
  { context, connections: { link }, driver, queue }: DriverDeps,
  objects: DriverObjects,
): Resync {
  const { flags, closers, log } = context;
  const openJobsOfDriver = () => openJobs(link.redis, flags.redisPrefix, driver.name);
  const resync = new Resync({
    objects,
    queue,
    openJobs: openJobsOfDriver,
    quarantineMs: quarantineMs(flags),
    clock: systemClock,
    log,
  });
  const timer = setInterval(() => void resync.run('resync'), timerMs(chooseResyncMs(flags)));
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

/** Reports orphans and missing volumes at each interval, if the driver can list its volumes. */
function openAudit(
  {
    context,
    connections,
    driver: { name, controllerCapabilities },
    lease,
    queue,
    pause,
  }: DriverDeps,
  events: EventRecorder,
): void {
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

import { capacityNamespace } from '../capacity/environment.ts';
import { openConnections, type Connections } from '../connections/open-connections.ts';
import { checkLeaseTimes, leaseName, type LeaseTimes } from '../election/lease.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import { EventRecorder, eventComponent } from '../kube/events.ts';
import { JOB_KINDS } from '../queue/contract.ts';
import { Producer } from '../queue/producer.ts';
import { quarantineMs } from '../records/flags.ts';
import { openJobs } from '../records/open-jobs.ts';
import { systemClock, timerMs } from '../runtime/clock.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { Listeners } from '../runtime/listeners.ts';
import { runProcess, type Invocation } from '../runtime/process.ts';
import type { Base, Context } from './base.ts';
import { openCapacity } from './capacity/open-capacity.ts';
import { flags as table, summary } from './flags.ts';
import { LeaderGate } from './leader-gate.ts';
import { leaseNamespace } from './lease-namespace.ts';
import type { DriverObjects } from './objects/object-source.ts';
import { openAudit } from './open-audit.ts';
import { openElection } from './open-election.ts';
import { openLeadership } from './open-leadership.ts';
import { openDriverObjects, openObjects } from './open-objects.ts';
import { openWaits } from './open-waits.ts';
import { Resync } from './resync.ts';

/** The ingest process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'ingest', summary, table, start });
}

async function start(context: Context): Promise<void> {
  const { health, stopping } = context;
  const times = checkFlags(context);
  const namespace = await leaseNamespace(context.flags.leaderElectionNamespace, context.env);
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
  const objects = openDriverObjects(base, openObjects(base), { events, changes });
  await objects.waitForSync(stopping);
  if (stopping.aborted) return;
  openWaits(base, objects, changes);
  openAudit(base, events);
  openCapacity(base, objects, changes);
  const resync = openResync(base, objects);
  const leadership = openLeadership(base, objects, resync);
  await connections.marker.waitUntilOurs(stopping);
  if (stopping.aborted) return;
  openElection(base, times, leadership);
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

/** Checks that /readyz and /healthz have before their parts are opened. Upstream's liveness probe,
 * too, asks for leader-election from the start, and where --leader-election is false. */
function addFirstChecks(health: Context['health']): void {
  health.ready('kubernetes', () => 'waiting for the driver first');
  health.live('leader-election', () => undefined);
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

/** Resyncs at each interval; leadership.ts says when else. */
function openResync(
  { context, connections: { link }, driver, gate }: Base,
  objects: DriverObjects,
): Resync {
  const { flags, closers, log } = context;
  const openJobsOfDriver = () => openJobs(link.redis, flags.redisPrefix, driver.name);
  const resync = new Resync({
    objects,
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

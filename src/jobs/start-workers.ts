import { performance } from 'node:perf_hooks';
import { type DriverConnections, instanceName } from '../connections/open-connections.ts';
import { leaseNamespace } from '../election/flags.ts';
import { leaseName } from '../election/lease.ts';
import { followLease, type LeaseFollower } from '../election/lease-follower.ts';
import type { JournalPlace } from '../journal/list-journal.ts';
import { isOutage, KubeError } from '../kube/kube-error.ts';
import { Consumer } from '../queue/consumer.ts';
import { JOB_KINDS, type JobKey, logFields } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import { RedisUnavailable } from '../redis/ask-redis.ts';
import { timerMs } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { type Logger, traceStep } from '../runtime/log.ts';
import { type FeatureGates, parseFeatureGates, retiredGates } from '../volumes/flags.ts';
import { reconcileClaim } from './claim/reconcile-claim.ts';
import { buildDependencies, type JobsContext, type SharedParts } from './dependencies.ts';
import { reconcileVolume } from './volume/reconcile-volume.ts';

/** Begins to take the jobs of one driver, as soon as the driver is known. Resolves then, or when
 * the context's signal aborts.
 * @throws UsageError as checkFlags */
export async function startWorkers(
  context: JobsContext,
  connections: DriverConnections,
  shared: SharedParts,
): Promise<void> {
  const gates = checkFlags(context);
  const { flags, env, closers, health, log, stopping } = context;
  for (const gate of retiredGates(flags.featureGates))
    log.warn(`--feature-gates: ${gate} is accepted and ignored: it is always on; remove it`);
  const known = await connections.driver.waitUntilKnown(stopping);
  if (known === undefined) return;
  const { name: driver } = known;
  const caches = shared.caches.openDriver(known, gates);
  closers.add('caches', () => caches.stop());
  health.ready('kubernetes', () => caches.trouble);
  await caches.waitForSync(stopping);
  if (stopping.aborted) return;

  const { ownLeader } = shared;
  const namespace = await leaseNamespace(flags.leaderElectionNamespace, env);
  const journal = { namespace, lease: leaseName(driver), driver, node: ownLeader?.node };
  const lease = ownLeader ?? (await openLease(context, connections, journal));
  const parts = { caches, gates, lease, journal, ownLeader };
  const deps = buildDependencies(context, connections, parts);
  const consumers = JOB_KINDS.map((kind) => {
    const consumer = new Consumer({
      concurrency: flags.workerThreads,
      stalledCheckMs: Math.min(STALLED_CHECK_MS, flags.lockDurationMs / 3),
      // The connection to a Redis of its own is never cut silently.
      idleReadS: ownLeader === undefined ? 5 : 10,
      link: shared.workerLink,
      driverState: connections.driver,
      plain: connections.link.redis,
      prefix: flags.redisPrefix,
      driver,
      name: instanceName(context),
      backoff: { startMs: flags.retryIntervalStartMs, maxMs: flags.retryIntervalMaxMs },
      lockMs: timerMs(flags.lockDurationMs),
      kind,
      process: (key, run) => runToOutcome(key, log, () => RECONCILERS[kind](deps, key, run)),
      log,
      metrics: context.metrics,
    });
    closers.add(`${kind} consumer`, () => consumer.close(flags.gracePeriodMs));
    return consumer;
  });
  health.ready('queues', () => consumers.find(({ trouble }) => trouble !== undefined)?.trouble);
  connections.serves.add(driver);
  closers.add('taking jobs', () => connections.serves.delete(driver));
  log.info({ driver, workers: flags.workerThreads }, 'taking jobs');
}

/** Longest time between two checks for jobs of dead workers. Each check costs seven Redis commands
 * for each queue. */
const STALLED_CHECK_MS = 10_000;

const RECONCILERS = { claim: reconcileClaim, volume: reconcileVolume } as const;

/** Follows the driver's Lease, which says whether the driver may be called (docs/leak-proof.md,
 * M2), even while no ingest runs. Resolves after the first attempt to read the Lease. */
async function openLease(
  { closers, health, log }: JobsContext,
  { kube: client }: DriverConnections,
  { namespace, lease: name }: JournalPlace,
): Promise<LeaseFollower> {
  const follower = followLease({ client, closers, log }, { namespace, name });
  health.ready('lease', () => follower.trouble);
  await follower.waitForFirstRead();
  return follower;
}

/** Calls a processor for a key, logs how the run ended, and turns errors of the API server and of
 * Redis into outcomes.
 * @throws any other error: it is a defect */
export async function runToOutcome(
  key: JobKey,
  log: Logger,
  run: () => Promise<Outcome>,
): Promise<Outcome> {
  const startedMs = performance.now();
  const outcome = await run().catch(toOutcome);
  traceStep(log, 'run', startedMs);
  const why = outcome.kind === 'done' ? { note: outcome.note } : { reason: outcome.reason };
  log.debug({ ...logFields(key), outcome: outcome.kind, ...why }, 'run ended');
  return outcome;
}

/** `later` while the API server or Redis is down; `retry` if the API server refused. */
function toOutcome(error: unknown): Outcome {
  if (error instanceof RedisUnavailable) return { kind: 'later', reason: error.message };
  if (!(error instanceof KubeError)) throw error;
  return { kind: isOutage(error) ? 'later' : 'retry', reason: error.message };
}

/** Adds the checks of parts that are not started yet. */
export function addFirstChecks(health: JobsContext['health']): void {
  health.ready('kubernetes', () => 'not started yet');
  health.ready('queues', () => 'not started yet');
}

/** @throws UsageError for flags that can't be used, and for a variable that is not set */
export function checkFlags({ flags }: Pick<JobsContext, 'flags'>): FeatureGates {
  if (flags.volumeNameUuidLength === 0) {
    throw new UsageError(
      '--volume-name-uuid-length: 0 would give all claims one name; choose -1 or 1 to 32',
    );
  }
  const gates = parseFeatureGates(flags.featureGates);
  if (typeof gates === 'string') throw new UsageError(`--feature-gates: ${gates}`);
  return gates;
}

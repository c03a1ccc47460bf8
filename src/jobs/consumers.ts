import { performance } from 'node:perf_hooks';
import { isOutage, KubeError } from '../kube/kube-error.ts';
import { Consumer } from '../queue/consumer.ts';
import { type JobKey, type JobKind, logFields } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import type { Run } from '../queue/run.ts';
import { RedisUnavailable } from '../redis/ask-redis.ts';
import { timerMs } from '../runtime/clock.ts';
import { type Logger, traceStep } from '../runtime/log.ts';
import { reconcileClaim } from './claim/reconcile-claim.ts';
import type { Dependencies, DriverDeps } from './dependencies.ts';
import { reconcileSnapshot } from './release-sources.ts';
import { reconcileVolume } from './volume/reconcile-volume.ts';

/** Starts to take the jobs of one queue.
 * @param concurrency  how many runs there may be at once */
type StartConsumer = (
  kind: JobKind,
  concurrency: number,
  reconcile: (key: JobKey, run: Run) => Promise<Outcome>,
) => Consumer;

/** @returns a function that starts a consumer */
function createConsumerStarter({
  context,
  connections,
  shared,
  driver,
  instance,
}: DriverDeps): StartConsumer {
  const { flags, closers, log, metrics } = context;
  const { workerLink } = shared;
  return (kind, concurrency, reconcile) => {
    const consumer = new Consumer({
      link: workerLink,
      driverState: connections.driver,
      plain: connections.link.redis,
      prefix: flags.redisPrefix,
      driver: driver.name,
      name: instance,
      backoff: { startMs: flags.retryIntervalStartMs, maxMs: flags.retryIntervalMaxMs },
      lockMs: timerMs(flags.lockDurationMs),
      stalledCheckMs:
        kind === 'snapshot'
          ? SNAPSHOT_STALLED_CHECK_MS
          : Math.min(STALLED_CHECK_MS, flags.lockDurationMs / 3),
      kind,
      concurrency,
      process: (key, run) => runToOutcome(key, log, () => reconcile(key, run)),
      log,
      metrics,
    });
    closers.add(`${kind} consumer`, () => consumer.close(flags.gracePeriodMs));
    return consumer;
  };
}

/** How often to look for jobs of dead workers, at most. Each look costs seven Redis commands for
 * each queue. */
const STALLED_CHECK_MS = 10_000;

/** There are few snapshots to remove our finalizer from, and none of them is urgent. */
const SNAPSHOT_CONCURRENCY = 2;
const SNAPSHOT_STALLED_CHECK_MS = 60_000;

/** A consumer for each queue of claims, volumes and snapshots. */
export function startConsumers(driverDeps: DriverDeps, deps: Dependencies): void {
  const { context, driver } = driverDeps;
  const { flags, health, log } = context;
  const startConsumer = createConsumerStarter(driverDeps);
  const consumers = [
    startConsumer('claim', flags.workerThreads, (key, run) => reconcileClaim(deps, key, run)),
    startConsumer('volume', flags.workerThreads, (key, run) => reconcileVolume(deps, key, run)),
  ];
  // A consumer is a connection, and ingest enqueues no snapshots for a driver that makes none.
  if (driver.controllerCapabilities.has('CREATE_DELETE_SNAPSHOT')) {
    const { kube } = deps.cluster;
    const { openSources } = deps;
    const { gates } = deps.settings.options;
    consumers.push(
      startConsumer('snapshot', SNAPSHOT_CONCURRENCY, (key) =>
        reconcileSnapshot({ kube, openSources, gates, log }, key),
      ),
    );
  }
  health.ready('queues', () => firstOf(consumers.map(({ trouble }) => trouble)));
}

function firstOf(lines: readonly (string | undefined)[]): string | undefined {
  return lines.find((line) => line !== undefined);
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

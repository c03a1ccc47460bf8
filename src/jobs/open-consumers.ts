import { Consumer } from '../queue/consumer.ts';
import type { Run } from '../queue/run.ts';
import type { JobKey, JobKind } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import { timerMs } from '../runtime/clock.ts';
import type { Base } from './base.ts';
import { reconcileClaim } from './claim/reconcile-claim.ts';
import type { LostRecords } from './lost-records.ts';
import type { ProcessorPorts } from './ports.ts';
import { reportOutages } from './report-outage.ts';
import { runToOutcome } from './run-to-outcome.ts';
import { reconcileSnapshot } from './snapshot/reconcile-snapshot.ts';
import { reconcileVolume } from './volume/reconcile-volume.ts';

/** Starts to take the jobs of one queue.
 * @param concurrency  how many runs there may be at once */
export type StartConsumer = (
  kind: JobKind,
  concurrency: number,
  reconcile: (key: JobKey, run: Run) => Promise<Outcome>,
) => Consumer;

/** @returns a function that starts a consumer, which takes nothing from another cluster's Redis */
export function createConsumerStarter(
  { context, connections, shared, driver, instance }: Base,
  lostRecords: LostRecords,
): StartConsumer {
  const { flags, closers, log, metrics } = context;
  const { marker } = connections;
  const { workerConnection: connection } = shared;
  closers.add(
    'flush listener',
    connection.onEmptied(() => lostRecords.checkNow()),
  );
  return (kind, concurrency, reconcile) => {
    const consumer = new Consumer({
      connection,
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
    if (!marker.isOurs) void consumer.pause();
    const end = marker.onChange((isOurs) => void (isOurs ? consumer.resume() : consumer.pause()));
    closers.add(`${kind} consumer`, async () => {
      end();
      await consumer.close(flags.gracePeriodMs);
    });
    return consumer;
  };
}

/** How often to look for jobs of dead workers, at most. Each look costs seven Redis commands for
 * each queue, and a volume whose call may be under way waits for the end of its ownership anyway,
 * which is 40 s by default. */
const STALLED_CHECK_MS = 10_000;

/** There are few snapshots to remove our finalizer from, and none of them is urgent. */
const SNAPSHOT_CONCURRENCY = 2;
const SNAPSHOT_STALLED_CHECK_MS = 60_000;

/** A consumer for each queue of claims, volumes and snapshots. */
export function startConsumers(
  { context: { flags, health, closers, log }, driver }: Base,
  ports: ProcessorPorts,
  startConsumer: StartConsumer,
): void {
  const claims = startConsumer('claim', flags.workerThreads, (key, run) =>
    reconcileClaim(ports, key, run),
  );
  const outages = reportOutages({ consumer: claims, events: ports.events, log });
  closers.add('reports of outages', () => outages.stop());
  const consumers = [
    claims,
    startConsumer('volume', flags.workerThreads, (key, run) => reconcileVolume(ports, key, run)),
  ];
  // A consumer is a connection, and ingest enqueues no snapshots for a driver that makes none.
  if (driver.controllerCapabilities.has('CREATE_DELETE_SNAPSHOT'))
    consumers.push(
      startConsumer('snapshot', SNAPSHOT_CONCURRENCY, (key) => reconcileSnapshot(ports, key)),
    );
  health.ready('queues', () => firstOf(consumers.map(({ trouble }) => trouble)));
  health.live('progress', () => firstOf(consumers.map(({ stuck }) => stuck)));
}

function firstOf(lines: readonly (string | undefined)[]): string | undefined {
  return lines.find((line) => line !== undefined);
}

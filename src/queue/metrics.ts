import { metricsIn, type Registry } from '../runtime/metrics.ts';
import { JOB_KINDS, type JobKind } from './contract.ts';
import type { Outcome } from './outcome.ts';

const DRIVER = ['driver'] as const;
const PLACE = ['driver', 'kind'] as const;
const OUTCOMES = ['done', 'retry', 'later', 'running', 'parked'] satisfies Outcome['kind'][];

export type ProducerMetrics = ReturnType<typeof producerMetrics>;
export type ConsumerMetrics = ReturnType<typeof consumerMetrics>;

/** What producers count. Those of one registry share their metrics.
 * @param dirty  keys with a request that Redis has not taken */
export function producerMetrics(
  registry: Registry,
  o: {
    readonly driver: string;
    readonly dirty: () => number;
  },
) {
  const { counter, sum } = metricsIn(registry);
  const { driver } = o;
  const metrics = {
    requests: counter(
      'sutler_queue_requests_total',
      'Requests to reconcile a key, before deduplication.',
      PLACE,
    ),
    added: counter('sutler_queue_jobs_added_total', 'Jobs that Redis took.', PLACE),
    deduplicated: counter('sutler_queue_jobs_deduplicated_total', 'Keys that had a job.', PLACE),
    rejected: counter('sutler_queue_batches_rejected_total', 'Batches that Redis refused.', DRIVER),
    emptied: counter('sutler_queue_redis_emptied_total', 'Times that Redis was emptied.', DRIVER),
    close: sum(
      'sutler_queue_dirty_keys',
      'Keys with a request that Redis has not taken.',
      o.dirty,
      { driver },
    ),
  };
  for (const each of [metrics.rejected, metrics.emptied]) each.inc({ driver }, 0);
  for (const kind of JOB_KINDS)
    for (const each of [metrics.requests, metrics.added, metrics.deduplicated])
      each.inc({ driver, kind }, 0);
  return metrics;
}

/** What consumers count. Those of one registry share their metrics.
 * @param labels  of this consumer, whose counters begin at 0
 * @param o.inFlight  how many runs are under way
 * @param o.isIdle    whether no jobs are taken */
export function consumerMetrics(
  registry: Registry,
  labels: { readonly driver: string; readonly kind: JobKind },
  o: { readonly inFlight: () => number; readonly isIdle: () => boolean },
) {
  const { counter, sum } = metricsIn(registry);
  const ends = [
    sum('sutler_queue_runs_in_flight', 'Runs under way in this process.', o.inFlight, labels),
    sum(
      'sutler_queue_driver_down',
      '1 while the queue pauses because nothing reaches the driver.',
      () => (o.isIdle() ? 1 : 0),
      labels,
    ),
  ];
  const metrics = {
    runs: counter('sutler_queue_runs_total', 'Runs by outcome.', [...PLACE, 'outcome']),
    locksLost: counter(
      'sutler_queue_locks_lost_total',
      'Runs whose lock expired or went to another worker.',
      PLACE,
    ),
    stalled: counter(
      'sutler_queue_jobs_stalled_total',
      'Jobs taken back from a worker that stopped renewing.',
      PLACE,
    ),
    close: (): void => ends.forEach((end) => end()),
  };
  for (const outcome of OUTCOMES) metrics.runs.inc({ ...labels, outcome }, 0);
  for (const each of [metrics.locksLost, metrics.stalled]) each.inc(labels, 0);
  return metrics;
}

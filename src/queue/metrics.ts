import { metricsIn, type Registry } from '../runtime/metrics.ts';
import { JOB_KINDS, type JobKind } from './contract.ts';
import type { Outcome } from './outcome.ts';

const DRIVER = ['driver'] as const;
const PLACE = ['driver', 'kind'] as const;
const OUTCOMES = ['done', 'retry', 'later', 'running', 'parked'] satisfies Outcome['kind'][];

export type ProducerMetrics = ReturnType<typeof producerMetrics>;
export type ConsumerMetrics = ReturnType<typeof consumerMetrics>;

/** What producers count. All producers of a registry share the metrics.
 * @param dirty  number of keys with a request that Redis has not accepted */
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
    added: counter('sutler_queue_jobs_added_total', 'Jobs that Redis accepted.', PLACE),
    deduplicated: counter(
      'sutler_queue_jobs_deduplicated_total',
      'Requests whose key already had a job.',
      PLACE,
    ),
    rejected: counter('sutler_queue_batches_rejected_total', 'Batches that Redis refused.', DRIVER),
    emptied: counter('sutler_queue_redis_emptied_total', 'Times that Redis was emptied.', DRIVER),
    close: sum(
      'sutler_queue_dirty_keys',
      'Keys with a request that Redis has not accepted.',
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

/** What consumers count. All consumers of a registry share the metrics.
 * @param labels  of this consumer, whose counters begin at 0
 * @param o.inFlight  how many runs are under way
 * @param o.isIdle  whether the consumer takes no jobs */
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
      '1 while the worker takes no jobs because the driver can not be reached.',
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
      'Jobs taken from a worker that stopped renewing its locks.',
      PLACE,
    ),
    close: (): void => ends.forEach((end) => end()),
  };
  for (const outcome of OUTCOMES) metrics.runs.inc({ ...labels, outcome }, 0);
  for (const each of [metrics.locksLost, metrics.stalled]) each.inc(labels, 0);
  return metrics;
}

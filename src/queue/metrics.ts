import { metricsIn, type Registry } from '../runtime/metrics.ts';

const SECONDS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
];
const DRIVER = ['driver'] as const;
const PLACE = ['driver', 'kind'] as const;
const TIMES = { labelNames: PLACE, buckets: SECONDS };

export type ProducerMetrics = ReturnType<typeof producerMetrics>;
export type ConsumerMetrics = ReturnType<typeof consumerMetrics>;

/** What producers count. Those of one registry share their metrics. */
export function producerMetrics(registry: Registry) {
  const { counter, gauge } = metricsIn(registry);
  return {
    requests: counter(
      'sutler_queue_requests_total',
      'Requests to reconcile a key, before deduplication.',
      PLACE,
    ),
    added: counter('sutler_queue_jobs_added_total', 'Jobs that Redis took.', PLACE),
    deduplicated: counter('sutler_queue_jobs_deduplicated_total', 'Keys that had a job.', PLACE),
    rejected: counter('sutler_queue_batches_rejected_total', 'Batches that Redis refused.', DRIVER),
    dirty: gauge(
      'sutler_queue_dirty_keys',
      'Keys with a request that Redis has not taken.',
      DRIVER,
    ),
    emptied: counter('sutler_queue_redis_emptied_total', 'Times that Redis was emptied.', DRIVER),
  };
}

/** What consumers count. Those of one registry share their metrics. */
export function consumerMetrics(registry: Registry) {
  const { counter, gauge, histogram } = metricsIn(registry);
  return {
    runs: counter('sutler_queue_runs_total', 'Runs by outcome.', [...PLACE, 'outcome']),
    waitSeconds: histogram(
      'sutler_queue_wait_seconds',
      'From adding a job to its first run.',
      TIMES,
    ),
    runSeconds: histogram('sutler_queue_run_seconds', 'Duration of a run.', TIMES),
    inFlight: gauge('sutler_queue_runs_in_flight', 'Runs under way in this process.', PLACE),
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
    driverDown: gauge(
      'sutler_queue_driver_down',
      '1 while the queue pauses because nothing reaches the driver.',
      PLACE,
    ),
  };
}

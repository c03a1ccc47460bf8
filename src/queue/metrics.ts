import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

type Labels = 'driver' | 'kind';

/** What the producer counts. */
export interface ProducerMetrics {
  readonly hints: Counter<Labels>;
  readonly added: Counter<Labels>;
  readonly deduplicated: Counter<Labels>;
  readonly rejected: Counter<'driver'>;
  readonly dirty: Gauge<'driver'>;
  readonly emptied: Counter<'driver'>;
}

/** What the consumer counts. */
export interface ConsumerMetrics {
  readonly runs: Counter<Labels | 'outcome'>;
  readonly waitSeconds: Histogram<Labels>;
  readonly runSeconds: Histogram<Labels>;
  readonly inFlight: Gauge<Labels>;
  readonly locksLost: Counter<Labels>;
  readonly stalled: Counter<Labels>;
  readonly driverDown: Gauge<Labels>;
}

const SECONDS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
];
const PLACE: readonly Labels[] = ['driver', 'kind'];

/** The producer's metrics in this registry; several producers share them. */
export function producerMetrics(registry: Registry): ProducerMetrics {
  const counter = once(registry, Counter);
  const gauge = once(registry, Gauge);
  return {
    hints: counter({
      name: 'sutler_queue_hints_total',
      help: 'Keys that were touched, before deduplication.',
      labelNames: PLACE,
    }),
    added: counter({
      name: 'sutler_queue_jobs_added_total',
      help: 'Jobs that Redis took.',
      labelNames: PLACE,
    }),
    deduplicated: counter({
      name: 'sutler_queue_jobs_deduplicated_total',
      help: 'Keys whose job was in the queue already.',
      labelNames: PLACE,
    }),
    rejected: counter({
      name: 'sutler_queue_batches_rejected_total',
      help: 'Batches that Redis refused; they are tried again.',
      labelNames: ['driver'],
    }),
    dirty: gauge({
      name: 'sutler_queue_dirty_keys',
      help: 'Keys touched that are not in Redis yet.',
      labelNames: ['driver'],
    }),
    emptied: counter({
      name: 'sutler_queue_redis_emptied_total',
      help: 'Times that Redis was found emptied.',
      labelNames: ['driver'],
    }),
  };
}

/** The consumer's metrics in this registry; the consumers of one process share them. */
export function consumerMetrics(registry: Registry): ConsumerMetrics {
  const counter = once(registry, Counter);
  const gauge = once(registry, Gauge);
  const histogram = once(registry, Histogram);
  return {
    runs: counter({
      name: 'sutler_queue_runs_total',
      help: 'Runs by how they ended.',
      labelNames: [...PLACE, 'outcome'],
    }),
    waitSeconds: histogram({
      name: 'sutler_queue_wait_seconds',
      help: 'From adding a job to its first run.',
      labelNames: PLACE,
      buckets: SECONDS,
    }),
    runSeconds: histogram({
      name: 'sutler_queue_run_seconds',
      help: 'Duration of a run.',
      labelNames: PLACE,
      buckets: SECONDS,
    }),
    inFlight: gauge({
      name: 'sutler_queue_runs_in_flight',
      help: 'Runs under way in this process.',
      labelNames: PLACE,
    }),
    locksLost: counter({
      name: 'sutler_queue_locks_lost_total',
      help: 'Runs whose lock expired or went to another worker.',
      labelNames: PLACE,
    }),
    stalled: counter({
      name: 'sutler_queue_jobs_stalled_total',
      help: 'Jobs taken back from a worker that stopped renewing.',
      labelNames: PLACE,
    }),
    driverDown: gauge({
      name: 'sutler_queue_driver_down',
      help: '1 while the queue pauses because nothing reaches the driver.',
      labelNames: PLACE,
    }),
  };
}

/** A registry refuses a second metric of one name: this returns the first instead. */
function once<C extends { readonly name: string; readonly help: string }, M extends object>(
  registry: Registry,
  Metric: new (settings: C & { registers: Registry[] }) => M,
): (settings: C) => M {
  return (settings) => {
    const known: unknown = registry.getSingleMetric(settings.name);
    return known instanceof Metric ? known : new Metric({ ...settings, registers: [registry] });
  };
}

import { performance } from 'node:perf_hooks';
import { Registry, metricsIn } from '../runtime/metrics.ts';

export type RequestMetrics = ReturnType<typeof createRequestMetrics>;

/** `sutler_kube_requests_total`, `sutler_kube_request_duration_seconds` and
 * `sutler_kube_in_flight`. */
export function createRequestMetrics(registry = new Registry()) {
  const { counter, histogram, sum } = metricsIn(registry);
  const requests = counter(
    'sutler_kube_requests_total',
    'HTTP requests to the API server, retries included; code 0: no answer.',
    ['verb', 'resource', 'code'],
  );
  const durations = histogram(
    'sutler_kube_request_duration_seconds',
    'Time from a request to the end of its answer, including the wait for a free connection.',
    {
      labelNames: ['verb', 'resource'],
      buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
    },
  );
  let inFlight = 0;
  sum('sutler_kube_in_flight', 'Calls under way or waiting, not counting watches.', () => inFlight);
  /** Begins a request. In the metrics, a watch ends when it is open.
   * @returns ends the request with its HTTP status, or 0 without an answer; the first call counts
   */
  return (verb: string, resource: string) => {
    const startedMs = performance.now();
    const isWatch = verb === 'watch';
    let hasEnded = false;
    if (!isWatch) inFlight += 1;
    return (code: number): void => {
      if (hasEnded) return;
      hasEnded = true;
      requests.inc({ verb, resource, code });
      if (isWatch) return;
      inFlight -= 1;
      durations.observe({ verb, resource }, (performance.now() - startedMs) / 1000);
    };
  };
}

export type ReflectorMetrics = ReturnType<typeof createReflectorMetrics>;

/** `sutler_kube_reflector_lists_total`, `…_watch_ends_total` and `…_objects`. All reflectors of a
 * registry share them, with the label `resource`. */
export function createReflectorMetrics(resource: string, registry = new Registry()) {
  const { counter, sum } = metricsIn(registry);
  const lists = counter(
    'sutler_kube_reflector_lists_total',
    'Full lists; more than one per resource means that a watch fell too far behind.',
    ['resource'],
  );
  const ends = counter(
    'sutler_kube_reflector_watch_ends_total',
    'Watches that ended, for any reason, and were opened again.',
    ['resource'],
  );
  return {
    countList: () => lists.inc({ resource }),
    countWatchEnd: () => ends.inc({ resource }),
    /** Reads the size only with the gauge: setting it at each event took a tenth of ingest's time.
     * @returns a function that ends the report */
    reportObjects: (sizeOf: () => number) =>
      sum('sutler_kube_reflector_objects', 'Objects kept in memory.', sizeOf, {
        resource,
      }),
  };
}

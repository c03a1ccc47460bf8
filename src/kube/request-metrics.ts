import { Counter, Gauge, Histogram } from 'prom-client';
import { Registry } from '../runtime/metrics.ts';

export type RequestMetrics = ReturnType<typeof createRequestMetrics>;

/** `sutler_kube_requests_total`, `sutler_kube_request_duration_seconds`, `sutler_kube_in_flight`,
 * `sutler_kube_in_flight_limit`. */
export function createRequestMetrics(
  admission: { readonly inFlight: number; readonly limit: number },
  registry = new Registry(),
) {
  const registers = [registry];
  const requests = new Counter({
    name: 'sutler_kube_requests_total',
    help: 'HTTP requests to the API server, retries included; code 0: no answer.',
    labelNames: ['verb', 'resource', 'code'],
    registers,
  });
  const durations = new Histogram({
    name: 'sutler_kube_request_duration_seconds',
    help: 'Time from sending a request to the end of its answer; waiting for its turn is excluded.',
    labelNames: ['verb', 'resource'],
    buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
    registers,
  });
  const inFlight: Gauge = new Gauge({
    name: 'sutler_kube_in_flight',
    help: 'Calls under way, without watches.',
    registers,
    collect: () => inFlight.set(admission.inFlight),
  });
  const limit: Gauge = new Gauge({
    name: 'sutler_kube_in_flight_limit',
    help: 'Calls that may be under way at once; lowered when the API server answers 429.',
    registers,
    collect: () => limit.set(admission.limit),
  });
  // Finding a series by its labels costs more than counting, so each is looked up once.
  const known = new Map<string, { readonly count: () => void; readonly time: Observe }>();
  const seriesOf = (verb: string, resource: string, code: number) => {
    const key = `${verb} ${resource} ${code}`;
    let series = known.get(key);
    if (series === undefined) {
      const counter = requests.labels({ verb, resource, code });
      const histogram = verb === 'watch' ? undefined : durations.labels({ verb, resource });
      series = {
        count: () => counter.inc(),
        time: (seconds) => histogram?.observe(seconds),
      };
      known.set(key, series);
    }
    return series;
  };
  return {
    /** @param code  HTTP status; 0 without an answer */
    observe(
      verb: string,
      resource: string,
      { code, durationMs }: { readonly code: number; readonly durationMs: number },
    ): void {
      const series = seriesOf(verb, resource, code);
      series.count();
      series.time(durationMs / 1000);
    },
  };
}

type Observe = (seconds: number) => void;

import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { LONGEST_TIMER_MS } from './clock.ts';

export { Registry } from 'prom-client';

/** prom-client would sample the lag of the event loop every 10 ms for these. That alone wakes an
 * idle process 100 times a second. `nodejs_eventloop_lag_seconds` needs no samples. */
const SAMPLED = ['min', 'max', 'mean', 'stddev', 'p50', 'p90', 'p99'].map(
  (statistic) => `nodejs_eventloop_lag_${statistic}_seconds`,
);

/** Creates the registry of a process, with those of Node's own metrics that cost nothing until they
 * are read. Parts that have metrics receive it as an argument. */
export function createRegistry(): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LONGEST_TIMER_MS });
  for (const name of SAMPLED) registry.removeSingleMetric(name);
  return registry;
}

interface Source {
  readonly labels: Readonly<Record<string, string>>;
  /** undefined: no value now. */
  readonly read: () => number | undefined;
}

/** Of gauges that are sums. */
const SOURCES = new WeakMap<object, Set<Source>>();

/** Creates metrics that several parts may share: one whose name the registry knows already is
 * returned, since the registry refuses a second one. */
export function metricsIn(registry: Registry) {
  const registers = [registry];
  /** The caller names the kind: a name stands for one kind only (docs/metrics.md). */
  const shared = <M>(name: string, create: () => M): M =>
    (registry.getSingleMetric(name) as M | undefined) ?? create();
  const counter = <L extends string>(name: string, help: string, labelNames: readonly L[]) =>
    shared(name, () => new Counter<L>({ name, help, labelNames, registers }));
  const gauge = <L extends string>(name: string, help: string, labelNames: readonly L[]) =>
    shared(name, () => new Gauge<L>({ name, help, labelNames, registers }));
  const histogram = <L extends string>(
    name: string,
    help: string,
    o: { readonly labelNames: readonly L[]; readonly buckets: number[] },
  ) => shared(name, () => new Histogram<L>({ name, help, ...o, registers }));
  /** A gauge that is asked when the page is read: the sum of what all its sources say, by label.
   * @returns ends this source */
  const sum = (name: string, help: string, read: Source['read'], labels: Source['labels'] = {}) => {
    const gauge = shared(name, () => {
      const sources = new Set<Source>();
      const collect = (): void => {
        created.reset();
        for (const { labels: of, read: value } of sources) {
          const part = value();
          if (part !== undefined) created.inc(of, part);
        }
      };
      const labelNames = Object.keys(labels);
      const created: Gauge = new Gauge({ name, help, labelNames, registers, collect });
      SOURCES.set(created, sources);
      return created;
    });
    const source = { labels, read };
    SOURCES.get(gauge)?.add(source);
    return () => void SOURCES.get(gauge)?.delete(source);
  };
  return { counter, gauge, histogram, sum };
}

import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { LONGEST_TIMER_MS } from './clock.ts';

export { Registry } from 'prom-client';

/** For these, prom-client would sample the event loop's lag every 10 ms, and wake an idle process
 * 100 times a second. `nodejs_eventloop_lag_seconds` needs no samples. */
const SAMPLED = ['min', 'max', 'mean', 'stddev', 'p50', 'p90', 'p99'].map(
  (statistic) => `nodejs_eventloop_lag_${statistic}_seconds`,
);

/** Creates the registry of a process, with Node's own metrics as far as they cost nothing until
 * they are read. Parts that have metrics receive the registry as an argument. */
export function createRegistry(): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LONGEST_TIMER_MS });
  for (const name of SAMPLED) registry.removeSingleMetric(name);
  return registry;
}

interface Source {
  readonly labels: Readonly<Record<string, string>>;
  /** Returns undefined if there is no value now. */
  readonly read: () => number | undefined;
}

/** A gauge that, when it is read, adds up the values of its sources, by label. */
class Sum extends Gauge {
  readonly sources = new Set<Source>();

  collect(): void {
    this.reset();
    for (const { labels, read } of this.sources) {
      const part = read();
      if (part !== undefined) this.inc(labels, part);
    }
  }
}

/** Creates metrics that several parts may share: if the registry has a metric of that name, returns
 * it, because a registry refuses two. */
export function metricsIn(registry: Registry) {
  const registers = [registry];
  /** The caller names the kind, which is the same for every use of a name (docs/metrics.md). */
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
  /** @param read  one source of the sum
   * @returns a function that removes this source */
  const sum = (name: string, help: string, read: Source['read'], labels: Source['labels'] = {}) => {
    const labelNames = Object.keys(labels);
    const { sources } = shared(name, () => new Sum({ name, help, labelNames, registers }));
    const source = { labels, read };
    sources.add(source);
    return () => void sources.delete(source);
  };
  return { counter, gauge, histogram, sum };
}

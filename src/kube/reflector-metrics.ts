import { Counter, Gauge, type Registry } from 'prom-client';

/** Metrics of one reflector. */
export interface ReflectorMetrics {
  listed(): void;
  reconnected(): void;
  objects(count: number): void;
}

const SILENT: ReflectorMetrics = { listed: () => {}, reconnected: () => {}, objects: () => {} };

/** `sutler_kube_reflector_lists_total`, `…_watch_ends_total` and `…_objects`, which all reflectors
 * of a process share; `resource` is their label. */
export function createReflectorMetrics(
  registry: Registry | undefined,
  resource: string,
): ReflectorMetrics {
  if (registry === undefined) return SILENT;
  const lists = counter(
    registry,
    'sutler_kube_reflector_lists_total',
    'Full lists; more than one per resource means that a watch fell too far behind.',
  );
  const ends = counter(
    registry,
    'sutler_kube_reflector_watch_ends_total',
    'Watches that ended, for any reason, and were opened again.',
  );
  const objects = gauge(registry, 'sutler_kube_reflector_objects', 'Objects in the store.');
  return {
    listed: () => lists.inc({ resource }),
    reconnected: () => ends.inc({ resource }),
    objects: (count) => objects.set({ resource }, count),
  };
}

function counter(registry: Registry, name: string, help: string): Counter {
  const known = registry.getSingleMetric(name);
  return known instanceof Counter
    ? known
    : new Counter({ name, help, labelNames: ['resource'], registers: [registry] });
}

function gauge(registry: Registry, name: string, help: string): Gauge {
  const known = registry.getSingleMetric(name);
  return known instanceof Gauge
    ? known
    : new Gauge({ name, help, labelNames: ['resource'], registers: [registry] });
}

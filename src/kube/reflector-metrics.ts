import { Gauge } from 'prom-client';
import { metricsIn, Registry } from '../runtime/metrics.ts';

export type ReflectorMetrics = ReturnType<typeof createReflectorMetrics>;

type SizeOf = () => number;

/** `sutler_kube_reflector_lists_total`, `…_watch_ends_total` and `…_objects`, which all reflectors
 * of a registry share; `resource` is their label. */
export function createReflectorMetrics(resource: string, registry = new Registry()) {
  const { counter } = metricsIn(registry);
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
  const sizes = sizesIn(registry);
  return {
    countList: () => lists.inc({ resource }),
    countWatchEnd: () => ends.inc({ resource }),
    /** From now on reports the number of objects that `sizeOf` returns. */
    reportObjects: (sizeOf: SizeOf) => void sizes.set(resource, sizeOf),
    /** Reports the last number from now on, so that the store can be freed. */
    endReport: (sizeOf: SizeOf) => {
      if (sizes.get(resource) !== sizeOf) return;
      const lastSize = sizeOf();
      sizes.set(resource, () => lastSize);
    },
  };
}

/** By registry and resource. */
const SIZES = new WeakMap<Registry, Map<string, SizeOf>>();

/** The gauge asks when it is read: setting it at each event took a tenth of ingest's time. */
function sizesIn(registry: Registry): Map<string, SizeOf> {
  const known = SIZES.get(registry);
  if (known !== undefined) return known;
  const sizes = new Map<string, SizeOf>();
  SIZES.set(registry, sizes);
  const objects: Gauge<'resource'> = new Gauge({
    name: 'sutler_kube_reflector_objects',
    help: 'Objects that are kept in memory.',
    labelNames: ['resource'],
    registers: [registry],
    collect: () => {
      for (const [resource, sizeOf] of sizes) objects.set({ resource }, sizeOf());
    },
  });
  return sizes;
}

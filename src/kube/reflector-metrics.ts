import { metricsIn, Registry } from '../runtime/metrics.ts';

export type ReflectorMetrics = ReturnType<typeof createReflectorMetrics>;

/** `sutler_kube_reflector_lists_total`, `…_watch_ends_total` and `…_objects`, which all reflectors
 * of a registry share; `resource` is their label. */
export function createReflectorMetrics(resource: string, registry = new Registry()) {
  const { counter, gauge } = metricsIn(registry);
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
  const objects = gauge('sutler_kube_reflector_objects', 'Objects in the store.', ['resource']);
  return {
    countList: () => lists.inc({ resource }),
    countWatchEnd: () => ends.inc({ resource }),
    setObjects: (count: number) => objects.set({ resource }, count),
  };
}

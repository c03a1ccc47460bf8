import { metricsIn, type Registry } from '../runtime/metrics.ts';

export type CapacityMetrics = ReturnType<typeof capacityMetrics>;

/** The metrics of storage capacity: upstream's three, and how old the values are. */
export function capacityMetrics(registry: Registry, driver: string) {
  const { gauge } = metricsIn(registry);
  const goal = gauge(
    'csistoragecapacities_desired_goal',
    'Number of CSIStorageCapacity objects that should exist.',
    ['driver'],
  );
  const current = gauge(
    'csistoragecapacities_desired_current',
    'Number of CSIStorageCapacity objects that exist and should exist.',
    ['driver'],
  );
  const obsolete = gauge(
    'csistoragecapacities_obsolete',
    'Number of CSIStorageCapacity objects that exist and will be deleted.',
    ['driver'],
  );
  const oldest = gauge(
    'sutler_capacity_oldest_age_seconds',
    'Time since the oldest value of a class was read from the driver.',
    ['driver', 'class'],
  );
  let shown: readonly string[] = [];
  return {
    /** All zero while another ingest leads. */
    setCounts(counts: { goal: number; current: number; obsolete: number }): void {
      goal.set({ driver }, counts.goal);
      current.set({ driver }, counts.current);
      obsolete.set({ driver }, counts.obsolete);
    },
    /** By class. */
    setOldest(agesMs: ReadonlyMap<string, number>): void {
      for (const className of shown) oldest.remove({ driver, class: className });
      for (const [className, ageMs] of agesMs)
        oldest.set({ driver, class: className }, ageMs / 1000);
      shown = [...agesMs.keys()];
    },
  };
}

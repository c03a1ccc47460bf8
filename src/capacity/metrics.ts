import { metricsIn, type Registry } from '../runtime/metrics.ts';
import type { CapacityItem } from './items.ts';

/** A value of storage capacity, wanted if it has parameters. */
interface ShownValue {
  readonly item: CapacityItem | undefined;
  readonly parameters: unknown;
  /** Unix ms. */
  readonly readMs: number;
  readonly objects: { readonly size: number };
}

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
    'Time since the driver reported the oldest value of a class.',
    ['driver', 'class'],
  );
  let shown: readonly string[] = [];
  /** @param values  none while another ingest leads */
  const show = (values: readonly ShownValue[], nowMs: number): void => {
    const wanted = values.filter(({ parameters }) => parameters !== undefined);
    const existing = wanted.filter(({ objects }) => objects.size > 0).length;
    const objects = values.reduce((sum, { objects: { size } }) => sum + size, 0);
    goal.set({ driver }, wanted.length);
    current.set({ driver }, existing);
    obsolete.set({ driver }, objects - existing);
    const agesMs = new Map<string, number>();
    for (const { item, readMs } of wanted) {
      const className = item?.className ?? '';
      agesMs.set(className, Math.max(agesMs.get(className) ?? 0, nowMs - readMs));
    }
    for (const className of shown) oldest.remove({ driver, class: className });
    for (const [className, ageMs] of agesMs) oldest.set({ driver, class: className }, ageMs / 1000);
    shown = [...agesMs.keys()];
  };
  return { show };
}

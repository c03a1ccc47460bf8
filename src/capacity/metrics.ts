import { createHash } from 'node:crypto';
import { metricsIn, type Registry } from '../runtime/metrics.ts';
import { type CapacityItem, describeSegment } from './items.ts';
import type { TopologyTerm } from '../topology/term.ts';

/** With more values than this, ages are shown for each class only: every value is a series. */
const MAX_SERIES = 2_000;
/** Longest text of a segment in a label. */
const MAX_LABEL = 200;
const HASH_LENGTH = 12;

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
  const age = gauge(
    'sutler_capacity_age_seconds',
    'Time since a value was last read from the driver; absent above 2,000 values.',
    ['driver', 'class', 'segment'],
  );
  const oldest = gauge(
    'sutler_capacity_oldest_age_seconds',
    'Age of the oldest value of a class.',
    ['driver', 'class'],
  );
  /** The series that were set, to be removed before others are. */
  let shown: (() => void)[] = [];
  return {
    /** All zero while another ingest leads. */
    setCounts(counts: { goal: number; current: number; obsolete: number }): void {
      goal.set({ driver }, counts.goal);
      current.set({ driver }, counts.current);
      obsolete.set({ driver }, counts.obsolete);
    },
    setAges(ages: readonly { readonly item: CapacityItem; readonly ageMs: number }[]): void {
      for (const remove of shown) remove();
      shown = [];
      const byClass = new Map<string, number>();
      for (const { item, ageMs } of ages) {
        const seconds = ageMs / 1000;
        byClass.set(item.className, Math.max(byClass.get(item.className) ?? 0, seconds));
        if (ages.length > MAX_SERIES) continue;
        const labels = { driver, class: item.className, segment: labelOf(item.segment) };
        age.set(labels, seconds);
        shown.push(() => age.remove(labels));
      }
      for (const [className, seconds] of byClass) {
        const labels = { driver, class: className };
        oldest.set(labels, seconds);
        shown.push(() => oldest.remove(labels));
      }
    },
  };
}

/** The segment as a label: a long one is cut and ends in a hash, so that no two share a series. */
function labelOf(segment: TopologyTerm): string {
  const text = describeSegment(segment);
  if (text.length <= MAX_LABEL) return text;
  const hash = createHash('sha256').update(text).digest('hex').slice(0, HASH_LENGTH);
  return `${text.slice(0, MAX_LABEL - HASH_LENGTH - 1)}…${hash}`;
}

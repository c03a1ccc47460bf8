import { metricsIn, type Registry } from '../runtime/metrics.ts';
import type { JobKind } from './contract.ts';

const NAME = ['name'] as const;
/** Client-go's buckets: from 10 ns, each ten times the one before. */
const SECONDS = Array.from({ length: 10 }, (_, k) => Number(`1e${k - 8}`));
const TIMES = { labelNames: NAME, buckets: SECONDS };

/** Client-go's metrics of external-provisioner's work queues, under the names of its queues,
 * `claims` and `volumes`. All users of a registry share them. */
export function workqueueMetrics(registry: Registry, kind: JobKind) {
  const { counter, histogram, sum } = metricsIn(registry);
  const labels = { name: `${kind}s` };
  const adds = counter('workqueue_adds_total', 'Jobs that Redis accepted.', NAME);
  const retries = counter('workqueue_retries_total', 'Runs after which the key waits.', NAME);
  const queueSeconds = histogram(
    'workqueue_queue_duration_seconds',
    'From adding a job to its first run.',
    TIMES,
  );
  const workSeconds = histogram('workqueue_work_duration_seconds', 'Duration of a run.', TIMES);
  const underWay = new Set<{ readonly beganMs: number }>();
  const ageSeconds = ({ beganMs }: { readonly beganMs: number }) => (Date.now() - beganMs) / 1_000;
  // So that rates begin at 0.
  for (const each of [adds, retries]) each.inc(labels, 0);
  const ends = [
    sum(
      'workqueue_unfinished_work_seconds',
      'Sum of the ages of the runs under way.',
      () => [...underWay].reduce((total, run) => total + ageSeconds(run), 0),
      labels,
    ),
    sum(
      'workqueue_longest_running_processor_seconds',
      'Age of the oldest run under way.',
      () => Math.max(0, ...[...underWay].map(ageSeconds)),
      labels,
    ),
  ];
  return {
    close: (): void => ends.forEach((end) => end()),
    added: (jobs: number): void => adds.inc(labels, jobs),
    /** @param waitedMs  of the first run of a job
     * @returns what to call at its end */
    begin(waitedMs: number | undefined): (isDone: boolean) => void {
      if (waitedMs !== undefined) queueSeconds.observe(labels, waitedMs / 1_000);
      const run = { beganMs: Date.now() };
      underWay.add(run);
      return (isDone) => {
        underWay.delete(run);
        workSeconds.observe(labels, ageSeconds(run));
        if (!isDone) retries.inc(labels);
      };
    },
  };
}

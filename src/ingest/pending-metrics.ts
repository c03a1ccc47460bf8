import type { DriverReport } from '../explain/report.ts';
import { metricsIn, type Registry } from '../runtime/metrics.ts';

/** What waits now. */
export interface Shown extends DriverReport {
  /** Jobs of each queue that no worker has taken yet. */
  readonly depths: Readonly<Record<'claims' | 'volumes', number>>;
  readonly atMs: number;
}

/** Shows what waits as metrics.
 * @param shown  undefined: this process does not lead. Only the leader has these metrics, so that
 *   sums over processes are right
 * @returns removes them */
export function showPending(
  registry: Registry,
  driver: string,
  shown: Shown | undefined,
): () => void {
  const { sum } = metricsIn(registry);
  const ofDriver = (name: string, help: string, read: (now: Shown) => number) =>
    sum(name, help, () => shown && read(shown), { driver });
  const ends = [
    ...(['claims', 'volumes'] as const).map((name) =>
      sum(
        'workqueue_depth',
        'Jobs that no worker has taken yet, by queue (claims or volumes).',
        () => shown?.depths[name] ?? 0,
        { name },
      ),
    ),
    ...groupClaims(shown).flatMap(({ labels, count, oldestSeconds }) => [
      sum(
        'sutler_claims_pending',
        'Claims that have waited for a second or more, by the cause that sutler explain names.',
        () => count,
        { driver, ...labels },
      ),
      sum(
        'sutler_claims_pending_oldest_seconds',
        'Age of the oldest claim that waits, by class and cause.',
        () => oldestSeconds,
        { driver, ...labels },
      ),
    ]),
    ofDriver(
      'sutler_deletions_pending',
      'Volumes that wait for deletion.',
      ({ pending }) => pending.filter(({ kind }) => kind === 'volume').length,
    ),
    ofDriver('sutler_drained', '1 while an operator drains the driver.', ({ state }) =>
      Number(state.drain !== undefined),
    ),
    ofDriver(
      'sutler_journal_entries',
      'Claims in the journal whose jobs are not finished.',
      ({ state }) => state.journal.entries ?? 0,
    ),
    ofDriver(
      'sutler_claims_in_doubt',
      'Claims in the journal with a call that may still be at work in the driver.',
      ({ state }) => state.journal.inDoubt ?? 0,
    ),
    ofDriver(
      'sutler_journal_off',
      '1 while ingest’s account may not write the journal: a crash may leave a volume behind.',
      ({ state }) => Number(state.journal.journalTrouble !== undefined),
    ),
  ];
  return () => {
    for (const end of ends) end();
  };
}

/** The claims that wait, by class and cause. */
function groupClaims(shown: Shown | undefined) {
  const groups = new Map<
    string,
    { labels: Record<string, string>; count: number; oldestSeconds: number }
  >();
  const { pending = [], atMs = 0 } = shown ?? {};
  for (const { kind, className, cause, sinceMs = atMs } of pending) {
    if (kind !== 'claim') continue;
    const labels = { class: className, cause: cause.name };
    const id = `${className} ${cause.name}`;
    const seconds = Math.max(0, atMs - sinceMs) / 1_000;
    const { count, oldestSeconds } = groups.get(id) ?? { count: 0, oldestSeconds: seconds };
    groups.set(id, { labels, count: count + 1, oldestSeconds });
  }
  return [...groups.values()];
}

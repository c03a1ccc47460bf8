import type { DriverReport } from '../explain/report.ts';
import { metricsIn, type Registry } from '../runtime/metrics.ts';

type Labels = Readonly<Record<'driver' | 'class' | 'cause', string>>;

const LABELS = ['driver', 'class', 'cause'] as const;

/** What is shown now. */
interface Shown extends DriverReport {
  /** How many jobs of each queue no worker has taken yet. */
  readonly depths: Readonly<Record<'claims' | 'volumes', number>>;
  readonly atMs: number;
}

/** What waits, as metrics. The leader alone has them, so that sums over processes are right. */
export class PendingMetrics {
  readonly #driver: string;
  readonly #pending;
  readonly #oldest;
  /** End the metrics that are asked when the page is read. */
  readonly #ends: readonly (() => void)[];
  /** Undefined: this process does not lead. */
  #shown: Shown | undefined;
  /** Of claims that have a value. */
  #labels: readonly Labels[] = [];

  constructor(registry: Registry, driver: string) {
    const { gauge, sum } = metricsIn(registry);
    this.#driver = driver;
    this.#pending = gauge(
      'sutler_claims_pending',
      'Claims that have waited for a second or more, by the cause that sutler explain names.',
      LABELS,
    );
    this.#oldest = gauge(
      'sutler_claims_pending_oldest_seconds',
      'Age of the oldest claim that waits, by class and cause.',
      LABELS,
    );
    const ofDriver = (name: string, help: string, read: (shown: Shown) => number) =>
      sum(name, help, () => this.#shown && read(this.#shown), { driver });
    this.#ends = [
      ...(['claims', 'volumes'] as const).map((name) =>
        sum(
          'workqueue_depth',
          'Jobs that no worker has taken yet; of claims and volumes, by name.',
          () => this.#shown?.depths[name] ?? 0,
          { name },
        ),
      ),
      ofDriver(
        'sutler_deletions_pending',
        'Volumes that wait for deletion.',
        ({ pending }) => pending.filter(({ kind }) => kind === 'volume').length,
      ),
      ofDriver('sutler_drained', '1 while an operator drains the driver.', ({ state }) =>
        state.drain === undefined ? 0 : 1,
      ),
      ofDriver(
        'sutler_journal_entries',
        'Claims in the journal whose jobs are not finished.',
        ({ state }) => state.journal.entries ?? 0,
      ),
      ofDriver(
        'sutler_claims_in_doubt',
        'Claims in the journal of which a call may still be at work in the driver.',
        ({ state }) => state.journal.inDoubt ?? 0,
      ),
      ofDriver(
        'sutler_journal_off',
        '1 while this account may not write the journal, so that a volume may be left behind.',
        ({ state }) => (state.journal.journalTrouble === undefined ? 0 : 1),
      ),
    ];
  }

  /** When something was shown last, Unix ms. */
  get shownMs(): number {
    return this.#shown?.atMs ?? -Infinity;
  }

  /** Shows what waits now. */
  show(report: DriverReport, depths: Shown['depths'], nowMs: number): void {
    this.clear();
    this.#shown = { ...report, depths, atMs: nowMs };
    const shown = new Map<string, Labels>();
    for (const { kind, className, cause, sinceMs = nowMs } of report.pending) {
      if (kind !== 'claim') continue;
      const labels = { driver: this.#driver, class: className, cause: cause.name };
      const id = `${className} ${cause.name}`;
      if (!shown.has(id)) this.#oldest.set(labels, Math.max(0, nowMs - sinceMs) / 1_000);
      shown.set(id, labels);
      this.#pending.inc(labels);
    }
    this.#labels = [...shown.values()];
  }

  /** This process does not lead any more. */
  clear(): void {
    this.#shown = undefined;
    for (const labels of this.#labels)
      for (const gauge of [this.#pending, this.#oldest]) gauge.remove(labels);
    this.#labels = [];
  }

  /** The driver is not served any more. */
  close(): void {
    this.clear();
    for (const end of this.#ends) end();
  }
}

import type { DriverReport } from '../explain/report.ts';
import { metricsIn, type Registry } from '../runtime/metrics.ts';

type Labels = Readonly<Record<'driver' | 'class' | 'cause', string>>;

type Depths = Readonly<Record<'claims' | 'volumes', number>>;

const NO_DEPTHS: Depths = { claims: 0, volumes: 0 };
const LABELS = ['driver', 'class', 'cause'] as const;
const DRIVER = ['driver'] as const;

/** What waits, as metrics. The leader alone has them, so that sums over processes are right. */
export class PendingMetrics {
  readonly #driver: string;
  readonly #pending;
  readonly #oldest;
  readonly #deletions;
  readonly #states;
  readonly #endDepths: readonly (() => void)[];
  #depths: Depths = NO_DEPTHS;
  /** Those that have a value. */
  #shown: readonly Labels[] = [];

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
    this.#endDepths = (['claims', 'volumes'] as const).map((name) =>
      sum(
        'workqueue_depth',
        'Jobs that no worker has taken yet; of claims and volumes, by name.',
        () => this.#depths[name],
        { name },
      ),
    );
    this.#deletions = gauge('sutler_deletions_pending', 'Volumes that wait for deletion.', DRIVER);
    this.#states = {
      drained: gauge('sutler_drained', '1 while an operator drains the driver.', DRIVER),
      entries: gauge(
        'sutler_journal_entries',
        'Claims in the journal whose jobs are not finished.',
        DRIVER,
      ),
      inDoubt: gauge(
        'sutler_claims_in_doubt',
        'Claims in the journal of which a call may still be at work in the driver.',
        DRIVER,
      ),
      journalOff: gauge(
        'sutler_journal_off',
        '1 while this account may not write the journal, so that a volume may be left behind.',
        DRIVER,
      ),
    };
  }

  /** Shows what waits now.
   * @param depths  how many jobs of each queue no worker has taken yet */
  show({ state, pending }: DriverReport, depths: Depths, nowMs: number): void {
    this.#depths = depths;
    const driver = { driver: this.#driver };
    this.#removeClaims();
    const shown = new Map<string, Labels>();
    const claims = pending.filter(({ kind }) => kind === 'claim');
    for (const { className, cause, sinceMs = nowMs } of claims) {
      const labels = { ...driver, class: className, cause: cause.name };
      const id = `${className} ${cause.name}`;
      if (!shown.has(id)) this.#oldest.set(labels, Math.max(0, nowMs - sinceMs) / 1_000);
      shown.set(id, labels);
      this.#pending.inc(labels);
    }
    this.#shown = [...shown.values()];
    this.#deletions.set(driver, pending.length - claims.length);
    this.#states.drained.set(driver, state.drain === undefined ? 0 : 1);
    const { entries = 0, inDoubt = 0, journalTrouble } = state.journal;
    this.#states.entries.set(driver, entries);
    this.#states.inDoubt.set(driver, inDoubt);
    this.#states.journalOff.set(driver, journalTrouble === undefined ? 0 : 1);
  }

  /** This process does not lead any more. */
  clear(): void {
    this.#removeClaims();
    this.#depths = NO_DEPTHS;
    for (const gauge of [this.#deletions, ...Object.values(this.#states)])
      gauge.remove({ driver: this.#driver });
  }

  /** The driver is not served any more. */
  close(): void {
    this.clear();
    for (const end of this.#endDepths) end();
  }

  #removeClaims(): void {
    for (const labels of this.#shown)
      for (const gauge of [this.#pending, this.#oldest]) gauge.remove(labels);
    this.#shown = [];
  }
}

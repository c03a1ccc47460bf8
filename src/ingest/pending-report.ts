import { unreachableEvent, whyNoJob } from '../explain/causes.ts';
import { type PendingEntry, writePending } from '../explain/pending-index.ts';
import { type DriverReport, reportDriver } from '../explain/report.ts';
import { regardingClaim } from '../kube/events.ts';
import { logFields } from '../queue/contract.ts';
import { countWaiting } from '../queue/queues.ts';
import { Outage } from '../runtime/outage.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { DriverDeps } from './driver-deps.ts';
import { type Shown, showPending } from './pending-metrics.ts';

/** Objects that are done sooner are not reported. The first look may come late, so that it is about
 * a second. */
const REPORTED_AFTER_MS = 900;
const PERIOD_MS = 1_000;
/** The pause after a report grows with its entries, because each is looked up in Redis. */
const PAUSE_MS_PER_ENTRY = 1;
const LONGEST_EXTRA_PAUSE_MS = 5_000;
/** How often the metrics are updated while nothing waits. */
const MEASURE_IDLE_MS = 10_000;
/** How often the event of a wait is renewed, so that it does not expire. */
const RENEW_AFTER_MS = 120_000;
/** How long a common cause (no worker, a drain, Redis) must last before it is reported. A restart
 * of Redis or of the leader takes a second. */
const LASTING_MS = 5_000;
/** How many claims get an event in one report at most. */
const MOST_TOLD = 500;

/** Reports what waits: in Redis, for commands and the dashboard, and in an event on each claim that
 * waits for a common cause. Claims that do not wait cost nothing. */
export class PendingReport {
  readonly #deps: DriverDeps;
  readonly #whyNoLeader: () => string | undefined;
  readonly #pending: () => Iterable<PendingEntry>;
  readonly #loop: PollLoop;
  /** When this process first saw each object wait, by UID. */
  #firstSeen = new Map<string, number>();
  /** Why all claims wait, and since when. */
  #waiting: { readonly name: string; readonly sinceMs: number } | undefined;
  /** The common cause in the last events, and the claims that have them. */
  #told = { sentence: '', atMs: 0, uids: new Set<string>() };
  /** When the metrics were last updated, Unix ms; -Infinity: this process does not lead. */
  #shownMs = -Infinity;
  /** Whether nothing waited when this leader last wrote what waits. */
  #wasEmpty = false;
  #endMetrics: () => void;
  readonly #outage: Outage;

  /** @param whyNoLeader  why nobody leads the driver; undefined if an ingest does, or another
   *   provisioner
   * @param pending  the claims and volumes that are not done yet */
  constructor(
    deps: DriverDeps,
    whyNoLeader: () => string | undefined,
    pending: () => Iterable<PendingEntry>,
  ) {
    const { log, metrics } = deps.context;
    this.#deps = deps;
    this.#whyNoLeader = whyNoLeader;
    this.#pending = pending;
    this.#outage = new Outage(log);
    this.#endMetrics = showPending(metrics, deps.place.driver, undefined);
    this.#loop = new PollLoop({
      step: () => this.#report(),
      onError: (error) => log.debug({ err: error }, 'could not report what waits; trying again'),
      periodMs: PERIOD_MS,
    });
  }

  async stop(): Promise<void> {
    this.#outage.forget();
    await this.#loop.stop();
    this.#endMetrics();
  }

  /** @returns the pause before the next report, if it is not the usual one */
  async #report(): Promise<number | void> {
    const { isLeading, connections } = this.#deps;
    if (!isLeading() && this.#shownMs > 0) this.#show(undefined);
    if (!isLeading() && this.#whyNoLeader() === undefined) {
      this.#outage.forget();
      return;
    }
    const startMs = Date.now();
    const entries = this.#dueEntries(startMs);
    const canWrite = isLeading() && connections.link.trouble === undefined;
    const report = canWrite ? await this.#publish(entries, startMs) : undefined;
    if (entries.some(({ key }) => key.kind === 'claim')) await this.#tell(entries, report, startMs);
    else this.#outage.forget();
    if (entries.length > 0)
      return PERIOD_MS + Math.min(entries.length * PAUSE_MS_PER_ENTRY, LONGEST_EXTRA_PAUSE_MS);
  }

  /** Writes what waits, and shows it as metrics.
   * @returns the driver's report; undefined if nothing waits and the metrics are recent */
  async #publish(
    entries: readonly PendingEntry[],
    nowMs: number,
  ): Promise<DriverReport | undefined> {
    const { context, place } = this.#deps;
    const isEmpty = entries.length === 0;
    const isRecent = nowMs - this.#shownMs < MEASURE_IDLE_MS;
    // Redis has no entries of this leader.
    if (isEmpty && this.#wasEmpty && isRecent) return undefined;
    for (const { key, why, className } of await writePending(place, entries)) {
      if (why === '') continue;
      const reason = whyNoJob(why, className).sentence;
      context.log.warn({ ...logFields(key), reason }, 'the claim waits');
    }
    this.#wasEmpty = isEmpty;
    if (isEmpty && isRecent) return undefined;
    const report = await reportDriver(place, entries);
    const depths = {
      claims: await countWaiting(place, 'claim'),
      volumes: await countWaiting(place, 'volume'),
    };
    this.#show({ ...report, depths, atMs: nowMs });
    return report;
  }

  #show(shown: Shown | undefined): void {
    this.#endMetrics();
    this.#endMetrics = showPending(this.#deps.context.metrics, this.#deps.place.driver, shown);
    this.#shownMs = shown?.atMs ?? -Infinity;
  }

  #dueEntries(nowMs: number): readonly PendingEntry[] {
    const seen = new Map<string, number>();
    const due: PendingEntry[] = [];
    for (const entry of this.#pending()) {
      const { uid } = entry.key;
      const firstMs = this.#firstSeen.get(uid) ?? nowMs;
      seen.set(uid, firstMs);
      if (nowMs - firstMs < REPORTED_AFTER_MS) continue;
      due.push(Number.isNaN(entry.sinceMs) ? { ...entry, sinceMs: firstMs } : entry);
    }
    this.#firstSeen = seen;
    return due;
  }

  /** Whether a cause has lasted long enough to be reported. Its end is reported at once. */
  #hasLasted(name: string, nowMs: number): boolean {
    if (this.#waiting?.name !== name) this.#waiting = { name, sinceMs: nowMs };
    return name === '' || nowMs - this.#waiting.sinceMs >= LASTING_MS;
  }

  /** Sends events to the claims that wait for a common cause. */
  async #tell(
    entries: readonly PendingEntry[],
    report: DriverReport | undefined,
    nowMs: number,
  ): Promise<void> {
    const { name: why, sentence } = this.#whyAllWait(report);
    if (!this.#hasLasted(why, nowMs)) return;
    const isKnown = sentence === this.#told.sentence && nowMs - this.#told.atMs < RENEW_AFTER_MS;
    if (!isKnown) this.#told = { sentence, atMs: nowMs, uids: new Set() };
    if (sentence === '') return this.#outage.ended({}, 'claims are worked on again');
    const causes = new Map(report?.pending.map(({ uid, cause }) => [uid, cause]));
    const isTold = (uid: string): boolean => causes.get(uid)?.name === report?.cause?.name;
    const claims = entries.filter(
      ({ key, why }) => key.kind === 'claim' && why === '' && isTold(key.uid),
    );
    this.#outage.met(sentence, { claims: claims.length, reason: sentence }, 'claims wait');
    for (const { key } of claims.slice(0, MOST_TOLD)) {
      if (this.#told.uids.has(key.uid)) continue;
      this.#told.uids.add(key.uid);
      const { name, sentence: own = '' } = causes.get(key.uid) ?? {};
      this.#deps.events.record({
        regarding: regardingClaim(key),
        type: 'Warning',
        // The words of a run that could not reach the driver, so that there is one Event.
        ...(name === 'Unreachable'
          ? { reason: 'ProvisioningFailed', message: unreachableEvent(own) }
          : { reason: 'ProvisioningDelayed', message: sentence }),
      });
      this.#deps.context.log.debug(
        { ...logFields(key), reason: sentence },
        'sent an event that says why the claim waits',
      );
    }
  }

  /** Why sutler works on no claim of the driver; '' if it does.
   * @param report  undefined while Redis can't be reached, or if this process does not lead */
  #whyAllWait(report: DriverReport | undefined): {
    readonly name: string;
    readonly sentence: string;
  } {
    const { connections, place } = this.#deps;
    const { link } = connections;
    const whyNot = this.#whyNoLeader();
    if (whyNot !== undefined)
      return { name: 'NoLeader', sentence: `no ingest leads driver ${place.driver}: ${whyNot}` };
    const cause = report?.cause;
    if (cause !== undefined)
      return { name: cause.name, sentence: `${cause.sentence}; ${cause.step}` };
    return report === undefined && link.trouble !== undefined
      ? { name: 'Redis', sentence: `provisioning waits for Redis: ${link.trouble}` }
      : { name: '', sentence: '' };
  }
}

import { isDeepStrictEqual } from 'node:util';
import type { Counter, Gauge, Registry } from 'prom-client';
import type { Clock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { metricsIn } from '../runtime/metrics.ts';
import { BLIP_MS, Outage } from '../runtime/outage.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import {
  acquireDelayMs,
  checkLeaseTimes,
  decide,
  type Decision,
  holderOf,
  type LeaseRecord,
  type LeaseTimes,
  type Observation,
  observe,
  otherHolder,
  releaseRecord,
  type StoredLease,
} from './lease.ts';
import { isOfOurs, type SeenLease } from './lease-view.ts';
import type { LeaseStore } from './kube-lease-store.ts';

export interface ElectorOptions extends LeaseTimes {
  readonly store: LeaseStore;
  /** Name of the Lease, for logs and metrics. */
  readonly leaseName: string;
  /** Unique per process: two processes with the same identity would both lead. */
  readonly identity: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly onStartedLeading: (elector: Elector) => void;
  /** The elector goes on trying to lead again. */
  readonly onStoppedLeading: (reason: string) => void;
  /** Uniform in [0, 1). */
  readonly random?: () => number;
}

const UNHEALTHY_AFTER_MS = 20_000;
const RELEASE_TIMEOUT_MS = 3000;
/** Pause after a failed renewal that a caller waits for, or after another process wrote first. */
const RENEW_PAUSE_MS = 1_000;
const UNREACHABLE = 'could not read or write the Lease; trying again';

/** Waits until the Lease is free, acquires it, and renews it until closed.
 *
 * This process leads from a successful write until it sees another holder, until `renewDeadlineMs`
 * have passed without a renewal, or until `close`. Another process may take over `leaseDurationMs`
 * after the last renewal that it saw, which is later. So there are never two leaders, if clocks run
 * at about the same speed. */
export class Elector {
  readonly #options: ElectorOptions;
  readonly #clock: Clock;
  readonly #status: Gauge<'name'>;
  readonly #slowPath: Counter<'name'>;
  readonly #loop: PollLoop;
  readonly #endWatch: () => void;
  /** The Lease as last read or written, which an update replaces. */
  #seen: Observation | undefined;
  #isAfterOther = false;
  /** This process acquired the Lease and has not noticed a loss. */
  #hasLease = false;
  /** When the last write that succeeded was sent. */
  #renewedMs = 0;
  #isClosing = false;
  #trouble: string | undefined;
  /** To be called when a write that begins later has succeeded, or this process stops leading. */
  #awaited: (() => void)[] = [];
  /** leaseTransitions must be at least this. */
  #leastTransitions = 0;
  readonly #outage: Outage;

  /** @throws UsageError if the times don't fit together */
  constructor(options: ElectorOptions) {
    checkLeaseTimes(options);
    const { store, clock, metrics, leaseName, retryPeriodMs, log } = options;
    this.#options = options;
    this.#outage = new Outage(log, retryPeriodMs + BLIP_MS);
    this.#clock = clock;
    const { counter, gauge } = metricsIn(metrics);
    this.#status = gauge('leader_election_master_status', 'Whether this process leads: 1 or 0.', [
      'name',
    ]);
    this.#slowPath = counter(
      'leader_election_slowpath_total',
      'Renewals that had to read the Lease first.',
      ['name'],
    );
    this.#status.set({ name: leaseName }, 0);
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: (error) => log.error({ err: error, lease: leaseName }, 'the election failed'),
      periodMs: retryPeriodMs,
      clock,
    });
    this.#endWatch = store.watch((lease) => this.#leaseChanged(lease));
  }

  /** Whether this process may act as the leader now. To be read before each act, because it becomes
   * false without an event, for example while the process is frozen. */
  get isLeader(): boolean {
    return this.#hasLease && this.#clock.nowMs() - this.#renewedMs < this.#options.renewDeadlineMs;
  }

  /** How long this process leads without another renewal, in ms. */
  get leadsForMs(): number {
    const leftMs = this.#renewedMs + this.#options.renewDeadlineMs - this.#clock.nowMs();
    return this.#hasLease ? Math.max(0, leftMs) : 0;
  }

  /** The holder of the Lease as last seen; undefined: none, not known yet, or its time is over. */
  get holder(): string | undefined {
    return holderOf(this.#seen, this.#clock.nowMs());
  }

  get seen(): SeenLease {
    return { lease: this.#seen, otherHolder: otherHolder(this.holder) };
  }

  /** Whether another provisioner was the last to hold the Lease before this process acquired it. */
  get isAfterOther(): boolean {
    return this.#isAfterOther;
  }

  /** How often the Lease has changed its holder, as last seen; 0: not known. */
  get transitions(): number {
    return this.#seen?.record.transitions ?? 0;
  }

  /** Writes the Lease with its current annotations now. Resolves when that has succeeded, or when
   * this process no longer leads.
   * @param transitions  raises leaseTransitions at least to this */
  renewNow(transitions = 0): Promise<void> {
    this.#leastTransitions = Math.max(this.#leastTransitions, transitions);
    if (!this.#hasLease) return Promise.resolve();
    return new Promise((resolve) => {
      this.#awaited.push(resolve);
      this.#loop.runNow();
    });
  }

  /** Why this process can't lead, in one line; undefined while it leads, or could. */
  get trouble(): string | undefined {
    return this.isLeader ? undefined : this.#trouble;
  }

  /** For /healthz/leader-election. False if this process believes to lead, but has not renewed the
   * Lease for the lease duration and 20 s more. */
  isHealthy(): boolean {
    const limitMs = this.#options.leaseDurationMs + UNHEALTHY_AFTER_MS;
    return !this.#hasLease || this.#clock.nowMs() - this.#renewedMs <= limitMs;
  }

  /** Stops, and releases the Lease so that another process can lead at once. Never rejects. */
  async close(): Promise<void> {
    const isFirst = !this.#isClosing;
    this.#isClosing = true;
    this.#outage.forget();
    this.#endWatch();
    await this.#loop.stop();
    if (!isFirst || !this.#hasLease) return;
    this.#stopLeading('stopping');
    await this.#release();
  }

  /** @returns how long to wait before the next step, in ms */
  #step(): Promise<number> {
    if (this.#hasLease && !this.isLeader)
      this.#stopLeading(`not renewed for ${this.#options.renewDeadlineMs} ms`);
    return this.#hasLease ? this.#renew() : this.#acquire();
  }

  async #acquire(): Promise<number> {
    const { retryPeriodMs, renewDeadlineMs, leaseName, identity, log } = this.#options;
    const delayMs = this.#acquireDelayMs();
    const startedMs = this.#clock.nowMs();
    try {
      const takenMs = await this.#withLimit(renewDeadlineMs, (signal) => this.#attempt(signal));
      this.#reportTrouble(undefined);
      if (takenMs !== undefined) return Math.max(1, Math.min(delayMs, takenMs));
    } catch (error) {
      this.#reportTrouble(error);
      return delayMs;
    }
    if (this.#isClosing) {
      await this.#release();
      return 0;
    }
    this.#renewedMs = startedMs;
    this.#hasLease = true;
    this.#status.set({ name: leaseName }, 1);
    log.debug({ lease: leaseName, identity }, 'leading');
    this.#options.onStartedLeading(this);
    return retryPeriodMs;
  }

  async #renew(): Promise<number> {
    const { retryPeriodMs, renewDeadlineMs } = this.#options;
    const startedMs = this.#clock.nowMs();
    const deadlineMs = this.#renewedMs + renewDeadlineMs;
    const awaited = this.#awaited.splice(0);
    try {
      const limitMs = deadlineMs - startedMs;
      const takenMs = await this.#withLimit(limitMs, (signal) => this.#attempt(signal));
      this.#reportTrouble(undefined);
      if (takenMs === undefined) {
        this.#renewedMs = startedMs;
        for (const each of awaited) each();
        return retryPeriodMs;
      }
      this.#awaited.push(...awaited);
      this.#stopLeading(`held by ${this.holder ?? 'no process'}`);
      return Math.max(1, Math.min(takenMs, this.#acquireDelayMs()));
    } catch (error) {
      this.#reportTrouble(error);
      this.#awaited.push(...awaited);
      const pauseMs = awaited.length > 0 ? RENEW_PAUSE_MS : retryPeriodMs;
      return Math.max(0, Math.min(pauseMs, deadlineMs - this.#clock.nowMs()));
    }
  }

  /** @param error  undefined: the Lease can be read and written */
  #reportTrouble(error: unknown): void {
    const lease = this.#options.leaseName;
    this.#trouble = error === undefined ? undefined : messageOf(error);
    if (error === undefined) this.#outage.ended({ lease }, 'the Lease can be read and written');
    else this.#outage.met(messageOf(error), { err: error, lease }, UNREACHABLE);
  }

  #acquireDelayMs(): number {
    const { retryPeriodMs, random = Math.random } = this.#options;
    return acquireDelayMs(retryPeriodMs, random());
  }

  /** Reads the Lease, and writes it if it is free or ours.
   * @returns undefined: the Lease is ours; else in how many ms to try again */
  async #attempt(signal: AbortSignal): Promise<number | undefined> {
    const { store, leaseName, retryPeriodMs } = this.#options;
    if (this.#hasLease) {
      // Only the leader writes the Lease, so write without reading first. The API server refuses
      // that if another process did write.
      const decision = this.#decide();
      if (decision.kind === 'write' && (await this.#didWrite(decision.record, signal)))
        return undefined;
      this.#slowPath.inc({ name: leaseName });
    }
    this.#observe(await store.get(signal));
    const decision = this.#decide();
    if (decision.kind === 'wait') return decision.forMs;
    if (!this.#hasLease) this.#isAfterOther = this.#seen !== undefined && !isOfOurs(this.#seen);
    if (await this.#didWrite(decision.record, signal)) return undefined;
    if (!this.#hasLease) return retryPeriodMs;
    // Another process wrote first; that alone does not end the term.
    await this.#clock.sleep(RENEW_PAUSE_MS, signal);
    return this.#attempt(signal);
  }

  async #didWrite(record: LeaseRecord, signal: AbortSignal): Promise<boolean> {
    const stored = await this.#options.store.write(record, this.#seen, signal);
    if (stored !== undefined) this.#observe(stored);
    return stored !== undefined;
  }

  #decide(): Decision {
    const { identity, leaseDurationMs } = this.#options;
    const candidate = { identity, leaseDurationMs, isLeading: this.#hasLease };
    const decision = decide(this.#seen, candidate, this.#clock.nowMs());
    if (decision.kind === 'wait') return decision;
    const transitions = Math.max(decision.record.transitions, this.#leastTransitions);
    return { ...decision, record: { ...decision.record, transitions } };
  }

  #observe(stored: StoredLease | undefined): void {
    this.#seen = observe(this.#seen, stored, this.#clock.nowMs());
  }

  #leaseChanged(lease: StoredLease | undefined): void {
    if (this.#isClosing) return;
    if (this.#hasLease) {
      // The watch also reports our own writes, possibly late. After another process's write, renew
      // now: the API server refuses that if the Lease has changed, and then #attempt reads it.
      const isHeld = lease?.record.holder === this.#options.identity;
      if (!isHeld || !isDeepStrictEqual(lease.annotations, this.#seen?.annotations))
        this.#loop.runNow();
      return;
    }
    this.#observe(lease);
    if (lease === undefined || lease.record.holder === '') this.#loop.runNow();
  }

  #stopLeading(reason: string): void {
    const { leaseName, identity, log } = this.#options;
    this.#hasLease = false;
    this.#status.set({ name: leaseName }, 0);
    for (const each of this.#awaited.splice(0)) each();
    log.debug({ lease: leaseName, identity, reason }, 'not leading any more');
    this.#options.onStoppedLeading(reason);
  }

  /** Releases the Lease as last seen or, if the API server refuses that, as just read. */
  async #release(): Promise<void> {
    const { store, identity, leaseName, log } = this.#options;
    try {
      await this.#withLimit(RELEASE_TIMEOUT_MS, async (signal) => {
        for (const read of [() => this.#seen, () => store.get(signal)]) {
          const stored = await read();
          if (stored?.record.holder !== identity) continue;
          const record = releaseRecord(stored.record, this.#clock.nowMs());
          if ((await store.write(record, stored, signal)) !== undefined) return;
        }
      });
    } catch (error) {
      log.warn({ err: error, lease: leaseName }, 'could not release the Lease; it will expire');
    }
  }

  /** Aborts the call after the limit. */
  async #withLimit<T>(limitMs: number, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const done = new AbortController();
    const limit = new AbortController();
    void this.#clock
      .sleep(Math.max(0, limitMs), done.signal)
      .then(() => limit.abort(new Error(`no answer within ${limitMs} ms`)));
    try {
      return await call(limit.signal);
    } finally {
      done.abort();
    }
  }
}

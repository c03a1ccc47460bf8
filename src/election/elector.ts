import { Counter, Gauge } from 'prom-client';
import type { Registry } from 'prom-client';

import type { Clock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';
import { acquireDelayMs, decide, leaseTimesProblem, released, sameRecord } from './lease.ts';
import type { LeaseTimes, Observation } from './lease.ts';
import type { LeaseStore, StoredLease } from './lease-store.ts';

/** Holds a Lease, or waits for it, until closed. */
export interface Elector {
  /** Whether this process may act now. Also false in a process that was frozen past its deadline
   * and has not noticed yet: ask each time. */
  readonly isLeader: boolean;
  /** Who holds the Lease as last seen; undefined: nobody, or not known yet. */
  readonly holder: string | undefined;
  /** False when this process believes it leads and did not renew for the lease duration and 20 s
   * more. For /healthz/leader-election. */
  healthy(): boolean;
  /** Stops, and gives the Lease up so that another can lead at once; never rejects. */
  close(): Promise<void>;
}

export interface ElectorOptions extends LeaseTimes {
  readonly store: LeaseStore;
  /** Name of the Lease, for logs and metrics. */
  readonly leaseName: string;
  /** Unique per process: two with one identity would both lead. */
  readonly identity: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
  /** Leading from now on. */
  readonly onStartedLeading: (elector: Elector) => void;
  /** Leading no more. It goes on trying to lead again. */
  readonly onStoppedLeading: (reason: string) => void;
  /** Uniform in [0, 1). */
  readonly random?: () => number;
}

/** Starts trying to lead.
 * @throws UsageError if the times can't work together */
export function startElector(options: ElectorOptions): Elector {
  const problem = leaseTimesProblem(options);
  if (problem !== undefined) throw new UsageError(problem);
  return new LeaseElector(options);
}

const UNHEALTHY_AFTER_MS = 20_000;
const RELEASE_MS = 3000;

class LeaseElector implements Elector {
  readonly #options: ElectorOptions;
  readonly #clock: Clock;
  readonly #status: Gauge<'name'>;
  readonly #slowPath: Counter<'name'>;
  readonly #closing = new AbortController();
  readonly #endWatch: () => void;
  readonly #ended: Promise<void>;
  #stored: StoredLease | undefined;
  #seen: Observation | undefined;
  #held = false;
  #renewedMs = 0;
  /** Ends the present wait. */
  #pause = new AbortController();

  constructor(options: ElectorOptions) {
    this.#options = options;
    this.#clock = options.clock;
    const { metrics, leaseName } = options;
    this.#status = gauge(metrics);
    this.#slowPath = counter(metrics);
    this.#status.set({ name: leaseName }, 0);
    this.#endWatch = options.store.watch((lease) => this.#changed(lease));
    this.#ended = this.#run();
  }

  get isLeader(): boolean {
    return this.#held && this.#clock.nowMs() - this.#renewedMs < this.#options.renewDeadlineMs;
  }

  get holder(): string | undefined {
    const holder = this.#seen?.record.holder;
    return holder === '' ? undefined : holder;
  }

  healthy(): boolean {
    return (
      !this.#held ||
      this.#clock.nowMs() - this.#renewedMs <= this.#options.leaseDurationMs + UNHEALTHY_AFTER_MS
    );
  }

  async close(): Promise<void> {
    const first = !this.#closing.signal.aborted;
    this.#closing.abort();
    this.#pause.abort();
    this.#endWatch();
    await this.#ended;
    if (!first || !this.#held) return;
    this.#lose('stopping');
    await this.#release();
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      if (this.#held && !this.isLeader)
        this.#lose(`not renewed for ${this.#options.renewDeadlineMs} ms`);
      const waitMs = this.#held ? await this.#renew() : await this.#acquire();
      if (signal.aborted) return;
      await this.#wait(waitMs);
    }
  }

  /** @returns how long to wait before the next try */
  async #acquire(): Promise<number> {
    const { retryPeriodMs, renewDeadlineMs, leaseName, identity, log } = this.#options;
    const delayMs = acquireDelayMs(retryPeriodMs, this.#random());
    const startedMs = this.#clock.nowMs();
    try {
      const left = await this.#limited(renewDeadlineMs, (signal) => this.#attempt(signal));
      if (left !== undefined) return Math.max(1, Math.min(delayMs, left));
    } catch (error) {
      log.warn({ err: error, lease: leaseName }, 'could not read or write the Lease; trying again');
      return delayMs;
    }
    if (this.#closing.signal.aborted) {
      await this.#release();
      return 0;
    }
    this.#renewedMs = startedMs;
    this.#held = true;
    this.#status.set({ name: leaseName }, 1);
    log.info({ lease: leaseName, identity }, 'leading');
    this.#tell(() => this.#options.onStartedLeading(this));
    return retryPeriodMs;
  }

  /** @returns how long to wait before the next renewal */
  async #renew(): Promise<number> {
    const { retryPeriodMs, renewDeadlineMs, leaseName, log } = this.#options;
    const startedMs = this.#clock.nowMs();
    const deadlineMs = this.#renewedMs + renewDeadlineMs;
    try {
      const left = await this.#limited(deadlineMs - startedMs, (signal) => this.#attempt(signal));
      if (!this.#held) return 0;
      if (left !== undefined) {
        this.#lose(`held by ${this.holder ?? 'nobody'}`);
        return Math.max(1, Math.min(left, acquireDelayMs(retryPeriodMs, this.#random())));
      }
      this.#renewedMs = startedMs;
      return retryPeriodMs;
    } catch (error) {
      log.warn({ err: error, lease: leaseName }, 'could not renew the Lease; trying again');
    }
    return Math.max(0, Math.min(retryPeriodMs, deadlineMs - this.#clock.nowMs()));
  }

  /** One look, and one write if it is ours to write.
   * @returns undefined: the Lease is ours; else for how long it certainly isn't, in ms */
  async #attempt(signal: AbortSignal): Promise<number | undefined> {
    const { store, leaseName } = this.#options;
    if (this.#held && this.#stored !== undefined) {
      // Nobody else writes while we lead: without looking first, refused if that is wrong.
      const decision = this.#decide();
      if (
        decision.kind === 'update' &&
        (await this.#write(store.update(decision.record, this.#stored, signal)))
      )
        return undefined;
      this.#slowPath.inc({ name: leaseName });
    }
    this.#observe(await store.get(signal));
    const decision = this.#decide();
    if (decision.kind === 'wait') return decision.forMs;
    const written =
      decision.kind === 'create' || this.#stored === undefined
        ? store.create(decision.record, signal)
        : store.update(decision.record, this.#stored, signal);
    // Another was faster: look again after a pause.
    return (await this.#write(written)) ? undefined : this.#options.retryPeriodMs;
  }

  async #write(written: Promise<StoredLease | undefined>): Promise<boolean> {
    const stored = await written;
    if (stored === undefined) return false;
    this.#observe(stored);
    return true;
  }

  #decide(): ReturnType<typeof decide> {
    const { identity, leaseDurationMs } = this.#options;
    return decide(
      this.#seen,
      { identity, leaseDurationMs, leading: this.#held },
      this.#clock.nowMs(),
    );
  }

  #observe(stored: StoredLease | undefined): void {
    this.#stored = stored;
    if (stored === undefined) {
      this.#seen = undefined;
    } else if (this.#seen === undefined || !sameRecord(this.#seen.record, stored.record)) {
      this.#seen = { record: stored.record, atMs: this.#clock.nowMs() };
    }
  }

  /** The watch saw the Lease change. */
  #changed(lease: StoredLease | undefined): void {
    if (this.#closing.signal.aborted) return;
    if (this.#held) {
      // Our own writes come back here, possibly late.
      if (lease?.record.holder === this.#options.identity) return;
      // Gone or another's: the next try finds out, now.
      this.#pause.abort();
      return;
    }
    this.#observe(lease);
    if (lease === undefined || lease.record.holder === '') this.#pause.abort();
  }

  #lose(reason: string): void {
    const { leaseName, identity, log } = this.#options;
    this.#held = false;
    this.#status.set({ name: leaseName }, 0);
    log.warn({ lease: leaseName, identity, reason }, 'not leading any more');
    this.#tell(() => this.#options.onStoppedLeading(reason));
  }

  async #release(): Promise<void> {
    const { store, identity, leaseName, log } = this.#options;
    try {
      await this.#limited(RELEASE_MS, async (signal) => {
        for (let look = 0; look < 2; look += 1) {
          const stored = look === 0 ? this.#stored : await store.get(signal);
          if (stored === undefined || stored.record.holder !== identity) continue;
          if (
            (await store.update(released(stored.record, this.#clock.nowMs()), stored, signal)) !==
            undefined
          )
            return;
        }
      });
    } catch (error) {
      log.warn(
        { err: error, lease: leaseName },
        'could not release the Lease; it expires by itself',
      );
    }
  }

  /** Runs a call with a limit of its own. Rejects at the limit, whether or not the store listens to
   * the signal. */
  async #limited<T>(limitMs: number, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const done = new AbortController();
    const limit = new AbortController();
    const late = this.#clock.sleep(Math.max(0, limitMs), done.signal).then((): never => {
      const error = new Error(`no answer within ${limitMs} ms`);
      limit.abort(error);
      throw error;
    });
    // When the call wins, nobody waits for this any more.
    late.catch(() => undefined);
    try {
      return await Promise.race([call(limit.signal), late]);
    } finally {
      done.abort();
    }
  }

  async #wait(ms: number): Promise<void> {
    if (!this.#pause.signal.aborted) await this.#clock.sleep(ms, this.#pause.signal);
    if (!this.#closing.signal.aborted) this.#pause = new AbortController();
  }

  #random(): number {
    return (this.#options.random ?? Math.random)();
  }

  #tell(callback: () => void): void {
    try {
      callback();
    } catch (error) {
      this.#options.log.error(
        { err: error, lease: this.#options.leaseName },
        'a listener of the election threw',
      );
    }
  }
}

function gauge(registry: Registry): Gauge<'name'> {
  const name = 'leader_election_master_status';
  const known: unknown = registry.getSingleMetric(name);
  if (known instanceof Gauge) return known;
  return new Gauge({
    name,
    help: 'Whether this process leads: 1 or 0.',
    labelNames: ['name'],
    registers: [registry],
  });
}

function counter(registry: Registry): Counter<'name'> {
  const name = 'leader_election_slowpath_total';
  const known: unknown = registry.getSingleMetric(name);
  if (known instanceof Counter) return known;
  return new Counter({
    name,
    help: 'Renewals that had to look at the Lease first.',
    labelNames: ['name'],
    registers: [registry],
  });
}

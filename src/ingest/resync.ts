import { performance } from 'node:perf_hooks';
import { type JobKey, keyId, type KeyToQueue } from '../queue/contract.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { LeaderOnlyQueue } from './leader-only-queue.ts';

export interface ResyncOptions {
  /** The keys of all objects that need a job now; one may come twice. */
  readonly outstanding: () => AsyncIterable<KeyToQueue>;
  /** The claims in the journal, which may be gone. */
  readonly entries: () => Iterable<KeyToQueue>;
  readonly queue: Pick<LeaderOnlyQueue, 'ensureQueued' | 'isAllowing'>;
  readonly intervalMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Over how long a large backlog is spread after a loss of Redis' data. */
const SPREAD_MS = 5_000;
const SLICE_MS = 100;
/** Fewest keys in a slice, so that a few keys are enqueued at once. */
const SLICE_MIN = 20;

/** Makes sure that each object that needs a job, and each claim in the journal, has a job.
 *
 * Usually nearly every key has a job already, so each key is enqueued as soon as it is found. After
 * a loss of Redis' data no key has a job, and all would reach the driver together, so the keys are
 * spread over time (invariant 10). The keys of new changes do not wait for that. */
export class Resync {
  readonly #options: ResyncOptions;
  /** When a run was last requested, by performance.now(). */
  #askedMs = performance.now();
  /** The run that is under way; another run waits for its end. */
  #current: AbortController | undefined;
  /** Why another run was requested, and whether it should be spread. */
  #requested: { readonly reason: string; readonly isSpread: boolean } | undefined;

  constructor(options: ResyncOptions) {
    this.#options = options;
  }

  /** Resyncs when the interval is over; to be called every second. */
  tick(): void {
    if (performance.now() - this.#askedMs >= this.#options.intervalMs) void this.run('resync');
  }

  /** Enqueues everything, if this ingest leads. If a run is under way, runs once more after it.
   * @param isSpread  spreads the keys over 5 s, because no key has a job; aborts the present run */
  async run(reason: string, isSpread = false): Promise<void> {
    this.#askedMs = performance.now();
    this.#requested = { reason, isSpread: isSpread || (this.#requested?.isSpread ?? false) };
    if (isSpread) this.#current?.abort();
    if (this.#current === undefined || isSpread) await this.#runRequested();
  }

  stop(): void {
    this.#current?.abort();
    this.#current = undefined;
    this.#requested = undefined;
  }

  async #runRequested(): Promise<void> {
    const current = new AbortController();
    this.#current = current;
    while (!current.signal.aborted && this.#requested !== undefined) {
      const { reason, isSpread } = this.#requested;
      this.#requested = undefined;
      await (isSpread
        ? this.#enqueueSpread(reason, current.signal)
        : this.#enqueueAtOnce(reason, current.signal));
    }
    if (this.#current === current) this.#current = undefined;
  }

  async #enqueueAtOnce(reason: string, signal: AbortSignal): Promise<void> {
    const { queue, log } = this.#options;
    let count = 0;
    for await (const key of this.#keys()) {
      if (signal.aborted || !queue.isAllowing) return;
      queue.ensureQueued(key);
      count += 1;
    }
    // The other reasons have lines of their own, unless they lasted less than a second.
    const level = reason === 'leading' ? 'info' : 'debug';
    log[level]({ reason, keys: count }, 'enqueued everything outstanding');
  }

  async #enqueueSpread(reason: string, signal: AbortSignal): Promise<void> {
    const { queue, clock, log } = this.#options;
    if (!queue.isAllowing) return;
    const keys: KeyToQueue[] = [];
    for await (const key of this.#keys()) keys.push(key);
    const slice = Math.max(SLICE_MIN, Math.ceil((keys.length * SLICE_MS) / SPREAD_MS));
    log.info({ reason, keys: keys.length }, 'enqueuing everything outstanding, spread over time');
    for (let from = 0; from < keys.length; from += slice) {
      if (signal.aborted || !queue.isAllowing) return;
      for (const key of keys.slice(from, from + slice)) queue.ensureQueued(key);
      await clock.sleep(SLICE_MS, signal);
    }
  }

  /** The keys of what is outstanding, each once. */
  async *#keys(): AsyncGenerator<KeyToQueue> {
    const { outstanding, entries, queue, log } = this.#options;
    if (!queue.isAllowing) return;
    const seen = new Set<string>();
    const isNew = (key: JobKey): boolean => seen.size < seen.add(keyId(key)).size;
    try {
      for await (const key of outstanding()) if (isNew(key)) yield key;
    } catch (error) {
      // Another ingest leads, or none; the next leader lists everything.
      if (!queue.isAllowing) return;
      log.warn(
        { err: error },
        'could not list everything outstanding; the next resync tries again',
      );
    }
    for (const key of entries()) if (isNew(key)) yield key;
  }
}

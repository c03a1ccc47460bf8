import { type JobKey, keyId, withoutCopy } from '../queue/contract.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { LeaderOnlyQueue } from './leader-only-queue.ts';

export interface ResyncOptions {
  /** The keys of all objects that need a job now; one may come twice. */
  readonly outstanding: () => AsyncIterable<JobKey>;
  readonly queue: Pick<LeaderOnlyQueue, 'ensureQueued' | 'isAllowing'>;
  readonly openJobs: () => Promise<ReadonlyMap<string, JobKey>>;
  /** How long after a loss of Redis' data no record may be opened. */
  readonly quarantineMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Over how long keys are spread after a loss. */
const SPREAD_MS = 30_000;
const SLICE_MS = 100;
/** Keys in a slice at least, so that a few keys are enqueued soon. */
const SLICE_MIN = 10;

/** Makes sure that everything that needs a job has one: each object that does, and each open
 * record, since its claim may be gone.
 *
 * As long as Redis keeps its data, nearly every key has a job, so each is enqueued as soon as it is
 * found. After a loss none has one, and all would reach the driver together: so they are spread
 * over time (invariant 11). A change that is seen meanwhile does not wait: its key goes straight to
 * the queue. */
export class Resync {
  readonly #options: ResyncOptions;
  /** What is under way; a spread ends a run, and a run waits for the end of either. */
  #current: AbortController | undefined;
  /** Why another run is asked for. */
  #requested: string | undefined;

  constructor(options: ResyncOptions) {
    this.#options = options;
  }

  /** Enqueues everything at once. Does nothing while this ingest does not lead. Runs once more
   * after a run or a spread that had begun to list before this call. */
  async run(reason: string): Promise<void> {
    this.#requested = reason;
    if (this.#current === undefined) await this.#runRequested(this.#begin());
  }

  /** Enqueues everything after a loss of data, spread over time. Begins when the quarantine is
   * over: no run could do anything before, and by then workers have written again the records that
   * they had left open. Ends what is under way; resolves when this one has ended, and a run that
   * was asked for meanwhile. */
  runAfterLoss(): Promise<void> {
    return this.#runSpread(this.#options.quarantineMs);
  }

  /** Enqueues everything spread over time from now on: for when it can't be told whether data was
   * lost. */
  runDoubtful(): Promise<void> {
    return this.#runSpread(0);
  }

  stop(): void {
    this.#current?.abort();
    this.#current = undefined;
    this.#requested = undefined;
  }

  #begin(): AbortSignal {
    this.#current?.abort();
    this.#current = new AbortController();
    return this.#current.signal;
  }

  async #runSpread(waitMs: number): Promise<void> {
    const signal = this.#begin();
    await this.#options.clock.sleep(waitMs, signal);
    if (signal.aborted) return;
    // The list that begins now is what was asked for until now.
    this.#requested = undefined;
    await this.#enqueueSpread(signal);
    await this.#runRequested(signal);
  }

  async #runRequested(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && this.#requested !== undefined) {
      const reason = this.#requested;
      this.#requested = undefined;
      await this.#enqueueAtOnce(reason, signal);
    }
    if (!signal.aborted) this.#current = undefined;
  }

  async #enqueueAtOnce(reason: string, signal: AbortSignal): Promise<void> {
    const { queue, log } = this.#options;
    let count = 0;
    for await (const key of this.#keys()) {
      if (signal.aborted || !queue.isAllowing) return;
      queue.ensureQueued(key);
      count += 1;
    }
    // What leads to the others has a line of its own, unless it healed within a second.
    const level = reason === 'leading' ? 'info' : 'debug';
    log[level]({ reason, keys: count }, 'enqueued everything outstanding');
  }

  async #enqueueSpread(signal: AbortSignal): Promise<void> {
    const { queue, clock, log } = this.#options;
    if (!queue.isAllowing) return;
    const keys: JobKey[] = [];
    for await (const key of this.#keys()) keys.push(withoutCopy(key));
    const slice = Math.max(SLICE_MIN, Math.ceil((keys.length * SLICE_MS) / SPREAD_MS));
    log.info({ keys: keys.length }, 'enqueuing everything outstanding, spread over time');
    for (let from = 0; from < keys.length; from += slice) {
      if (signal.aborted || !queue.isAllowing) return;
      for (const key of keys.slice(from, from + slice)) queue.ensureQueued(key);
      await clock.sleep(SLICE_MS, signal);
    }
  }

  /** The keys of what is outstanding, each once. */
  async *#keys(): AsyncGenerator<JobKey> {
    const { outstanding, queue, openJobs, log } = this.#options;
    if (!queue.isAllowing) return;
    const seen = new Set<string>();
    const isNew = (key: JobKey): boolean => seen.size < seen.add(keyId(key)).size;
    try {
      for await (const key of outstanding()) if (isNew(key)) yield key;
      for (const key of (await openJobs()).values()) if (isNew(key)) yield key;
    } catch (error) {
      // Another ingest leads, or none; the next leader lists everything.
      if (!queue.isAllowing) return;
      log.warn(
        { err: error },
        'could not list everything outstanding; the next resync tries again',
      );
    }
  }
}

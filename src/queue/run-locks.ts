import type { Logger } from '../runtime/log.ts';

/** Why a run may start no more calls. */
type AbortReason = 'shutdown' | 'lock lost' | 'lock expired';

interface RunUnderWay {
  readonly keyId: string;
  readonly abort: AbortController;
  renewedMs: number;
}

interface RunLocksOptions {
  readonly lockMs: number;
  readonly log: Logger;
  readonly onLockLost: () => void;
}

/** Part of a lock's duration after which a lock that was not renewed counts as lost. */
const RENEW_DEADLINE = 0.8;
const CHECKS_PER_LOCK = 20;

/** Bookkeeping of the runs under way in this worker, beside BullMQ's locks. When a lock expires
 * while Redis can't be reached, BullMQ reports nothing, gives this worker the job again although
 * its earlier run goes on, and loses track of the new lock when that run ends. So this class allows
 * one run per key, and aborts a run's signal before its lock can expire. An aborted run starts
 * no more calls, and none that was sent is cancelled (invariant 7). */
export class RunLocks {
  readonly #options: RunLocksOptions;
  readonly #byJob = new Map<string, RunUnderWay>();
  readonly #keyIds = new Set<string>();
  /** Set while there are runs, and for one tick more. */
  #timer: NodeJS.Timeout | undefined;

  constructor(options: RunLocksOptions) {
    this.#options = options;
  }

  /** Runs under way. */
  get size(): number {
    return this.#byJob.size;
  }

  /** The signal of a new run; undefined while another run of the key or of the job is under way
   * here. */
  begin(jobId: string, keyId: string, nowMs: number): AbortSignal | undefined {
    if (this.#byJob.has(jobId) || this.#keyIds.has(keyId)) return undefined;
    const run: RunUnderWay = { keyId, abort: new AbortController(), renewedMs: nowMs };
    this.#byJob.set(jobId, run);
    this.#keyIds.add(keyId);
    this.#timer ??= setInterval(() => this.#check(), this.#options.lockMs / CHECKS_PER_LOCK);
    return run.abort.signal;
  }

  end(jobId: string): void {
    const run = this.#byJob.get(jobId);
    if (run === undefined) return;
    this.#byJob.delete(jobId);
    this.#keyIds.delete(run.keyId);
  }

  /** To be called when BullMQ renewed these locks. */
  renewed(jobIds: readonly string[], nowMs: number): void {
    for (const jobId of jobIds) {
      const run = this.#byJob.get(jobId);
      if (run !== undefined) run.renewedMs = nowMs;
    }
  }

  /** To be called when Redis answers that these locks are gone. */
  markLost(jobIds: readonly string[]): void {
    for (const jobId of jobIds) this.#abort(jobId, 'lock lost');
  }

  abortAll(reason: AbortReason): void {
    for (const jobId of this.#byJob.keys()) this.#abort(jobId, reason);
  }

  /** Looks after the runs under way no longer. */
  stop(): void {
    clearInterval(this.#timer);
  }

  /** Aborts the runs whose lock is about to expire. */
  #check(): void {
    const nowMs = Date.now();
    for (const [jobId, { renewedMs }] of this.#byJob) {
      if (nowMs - renewedMs > this.#options.lockMs * RENEW_DEADLINE)
        this.#abort(jobId, 'lock expired');
    }
    if (this.#byJob.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #abort(jobId: string, reason: AbortReason): void {
    const run = this.#byJob.get(jobId);
    if (run === undefined || run.abort.signal.aborted) return;
    run.abort.abort(new Error(reason));
    if (reason === 'shutdown') return;
    this.#options.onLockLost();
    this.#options.log.debug(
      { job: jobId, reason },
      'a run lost its lock: it starts no more calls; calls that were sent go on',
    );
  }
}

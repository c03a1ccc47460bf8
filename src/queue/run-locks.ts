import type { Logger } from '../runtime/log.ts';

/** Why a run was told to send nothing any more. */
export type AbortReason = 'shutdown' | 'lock lost' | 'lock expired' | 'Redis emptied';

interface Running {
  readonly keyId: string;
  readonly abort: AbortController;
  renewedMs: number;
}

export interface RunLocksOptions {
  readonly lockMs: number;
  readonly log: Logger;
  readonly onLockLost: () => void;
}

/** Knows the runs under way in this worker. BullMQ alone is not enough: it lets a worker take a job
 * again whose earlier run still goes on here (its lock expired while Redis was away), loses track
 * of the new lock when the earlier run ends, and says nothing while Redis can't be asked. So: one
 * run per key here, and a lease of our own that ends before the lock can. What is aborted is the
 * leave to send; nothing that was sent is cut short. */
export class RunLocks {
  readonly #options: RunLocksOptions;
  readonly #byJob = new Map<string, Running>();
  readonly #keys = new Set<string>();

  constructor(options: RunLocksOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#byJob.size;
  }

  /** The signal of a new run; undefined while another run of the key, or of the job, goes on here.
   */
  begin(jobId: string, keyId: string, nowMs: number): AbortSignal | undefined {
    if (this.#keys.has(keyId) || this.#byJob.has(jobId)) return undefined;
    const run: Running = { keyId, abort: new AbortController(), renewedMs: nowMs };
    this.#byJob.set(jobId, run);
    this.#keys.add(keyId);
    return run.abort.signal;
  }

  end(jobId: string): void {
    const run = this.#byJob.get(jobId);
    if (run === undefined) return;
    this.#byJob.delete(jobId);
    this.#keys.delete(run.keyId);
  }

  /** BullMQ renewed these locks. */
  renewed(jobIds: readonly string[], nowMs: number): void {
    for (const jobId of jobIds) {
      const run = this.#byJob.get(jobId);
      if (run !== undefined) run.renewedMs = nowMs;
    }
  }

  /** Redis says that these locks are gone. */
  lost(jobIds: readonly string[]): void {
    for (const jobId of jobIds) this.#abort(jobId, 'lock lost');
  }

  /** Aborts the runs whose lock may be about to expire. */
  expire(nowMs: number): void {
    for (const [jobId, run] of this.#byJob) {
      if (nowMs - run.renewedMs > this.#options.lockMs * 0.8) this.#abort(jobId, 'lock expired');
    }
  }

  abortAll(reason: AbortReason): void {
    for (const jobId of this.#byJob.keys()) this.#abort(jobId, reason);
  }

  #abort(jobId: string, reason: AbortReason): void {
    const run = this.#byJob.get(jobId);
    if (run === undefined || run.abort.signal.aborted) return;
    run.abort.abort(new Error(reason));
    if (reason !== 'shutdown') {
      this.#options.onLockLost();
      this.#options.log.warn(
        { job: jobId, reason },
        'a run lost its lock: it starts no call any more; one that was sent goes on',
      );
    }
  }
}

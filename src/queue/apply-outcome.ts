import { DelayedError, type Job, WaitingError } from 'bullmq';
import type { Redis } from 'ioredis';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { type Backoff, requeueDelayMs, retryDelayMs } from './backoff.ts';
import { type JobKey, keyId, parseJob } from './contract.ts';
import { type Outcome, shownReason } from './outcome.ts';
import { takePendingPromotion } from './pending-promotion.ts';
import { clearStatus, type HoldOff, writeStatus } from './status.ts';

/** A job that BullMQ gave to this worker. */
export interface TakenJob {
  readonly job: Job;
  /** Token of the job's lock. */
  readonly token: string;
  /** undefined for a job that this version can't read. */
  readonly key: JobKey | undefined;
}

export interface OutcomeApplierOptions {
  readonly redis: Redis;
  readonly prefix: string;
  readonly driver: string;
  readonly queue: string;
  readonly backoff: Backoff;
  readonly random: () => number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A failure as BullMQ is told of it: it counts the failure and asks `failureDelayMs` for the delay
 * before the next run. */
class CountedFailure extends Error {
  override readonly name = 'CountedFailure';
  readonly minDelayMs: number;

  constructor(reason: string, minDelayMs: number) {
    super(reason);
    this.minDelayMs = minDelayMs;
    // BullMQ stores the stack in the job, and the place of the throw says nothing.
    this.stack = reason;
  }
}

/** Turns the outcome of a run into what BullMQ does with the job next, and writes the key's status.
 * Builds on backoff.ts, which knows the delays, status.ts and pending-promotion.ts. */
export class OutcomeApplier {
  readonly #options: OutcomeApplierOptions;

  constructor(options: OutcomeApplierOptions) {
    this.#options = options;
  }

  /** Ends a run of a job by its outcome.
   * @returns what BullMQ stores as the result of a job that is complete
   * @throws what tells BullMQ that the job failed or was delayed */
  async apply(taken: TakenJob, outcome: Outcome): Promise<string | null> {
    const runs = await this.#writeStatus(taken, outcome);
    if (outcome.kind === 'done') return outcome.note ?? null;
    if (outcome.kind === 'retry')
      throw new CountedFailure(shownReason(outcome.reason), outcome.minDelayMs ?? 0);
    const { backoff, random } = this.#options;
    return this.delay(taken, requeueDelayMs(outcome, runs, backoff, random()));
  }

  /** BullMQ's back-off strategy: the delay after a failure of a run.
   * @param failures failures of this job, this one included */
  failureDelayMs(failures: number, error: Error | undefined): number {
    const { backoff, random } = this.#options;
    const minDelayMs = error instanceof CountedFailure ? error.minDelayMs : 0;
    return retryDelayMs(failures, backoff, random(), minDelayMs);
  }

  /** Delays the job without counting a failure. */
  async delay({ job, token }: TakenJob, delayMs: number): Promise<never> {
    // A whole number, since BullMQ computes the score from it.
    await job.moveToDelayed(Math.ceil(Date.now() + Math.max(1, delayMs)), token);
    await this.promoteIfPending(job);
    throw new DelayedError();
  }

  /** Returns the job to the waiting ones, for any worker to take. */
  async returnToWait({ job, token }: TakenJob): Promise<never> {
    await job.moveToWait(token);
    throw new WaitingError();
  }

  /** Promotes a job that has just been delayed if `enqueueNow` met its run. Never rejects. */
  async promoteIfPending({ id: jobId, data }: Job): Promise<void> {
    const parsed = parseJob(data);
    if (!parsed.ok || jobId === undefined) return;
    const { redis, clock, log } = this.#options;
    const run = { jobId, keyId: keyId(parsed.key), nowMs: clock.nowMs() };
    await takePendingPromotion(redis, this.#options, run).catch((error: unknown) =>
      log.debug({ err: error, job: jobId }, 'could not ask for a pending promotion'),
    );
  }

  /** Costs a command only when the run did not end with `done`, or an earlier run of the job did
   * not.
   * @returns how many runs in a row, this one included, had this outcome */
  async #writeStatus({ job, key }: TakenJob, outcome: Outcome): Promise<number> {
    if (key === undefined) return job.attemptsStarted;
    const { redis, prefix, driver, clock } = this.#options;
    const place = { prefix, driver, key };
    if (outcome.kind === 'done') {
      if (job.attemptsStarted > 1) await clearStatus(redis, place);
      return 0;
    }
    const atMs = clock.nowMs();
    return writeStatus(redis, place, {
      outcome: outcome.kind,
      reason: shownReason(outcome.reason),
      atMs,
      ...(outcome.kind === 'parked' && outcome.until ? { until: outcome.until } : {}),
      ...holdOffOf(outcome, atMs),
    });
  }
}

function holdOffOf(outcome: Outcome, atMs: number): { readonly holdOff?: HoldOff } {
  if (outcome.kind !== 'retry' || outcome.holdOffScope === undefined) return {};
  const { holdOffScope: scope, minDelayMs = 0 } = outcome;
  return { holdOff: { scope, untilMs: atMs + minDelayMs } };
}

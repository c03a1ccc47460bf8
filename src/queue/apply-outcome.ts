import { DelayedError, type Job, WaitingError } from 'bullmq';
import type { RedisPlace } from '../redis/key-prefix.ts';
import type { Backoff } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { BLIP_MS } from '../runtime/outage.ts';
import { type JobKey, logFields } from './contract.ts';
import { type Outcome, requeueDelayMs, retryDelayMs, shownReason } from './outcome.ts';
import { clearStatus, writeStatus } from './status.ts';

/** A job that BullMQ gave to this worker. */
export interface TakenJob {
  readonly job: Job;
  /** Token of the job's lock. */
  readonly token: string;
  /** undefined for a job that this version can't read. */
  readonly key: JobKey | undefined;
}

interface OutcomeApplierOptions extends RedisPlace {
  readonly backoff: Backoff;
  readonly random: () => number;
  readonly log: Logger;
}

/** Makes BullMQ count a failure and ask `failureDelayMs` for the delay before the next run. */
class CountedFailure extends Error {
  override readonly name = 'CountedFailure';
  readonly minDelayMs: number;

  constructor(reason: string, minDelayMs: number) {
    super(reason);
    this.minDelayMs = minDelayMs;
    // BullMQ stores the stack in the job, and where this is thrown is of no interest.
    this.stack = reason;
  }
}

/** Makes BullMQ do what the outcome of a run asks for, writes the key's status, and logs a failure
 * whose reason is another than before: at once, or if the driver was not reached, when that has
 * lasted for a second. */
export class OutcomeApplier {
  readonly #options: OutcomeApplierOptions;

  constructor(options: OutcomeApplierOptions) {
    this.#options = options;
  }

  /** Ends a run.
   * @returns what BullMQ stores as the result of a complete job
   * @throws CountedFailure for a job that failed, DelayedError for one that is delayed */
  async apply(taken: TakenJob, outcome: Outcome): Promise<string | null> {
    if (outcome.kind === 'done') {
      await this.#clearStatus(taken);
      return outcome.note ?? null;
    }
    const runs = await this.#writeStatus(taken, outcome);
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
    throw new DelayedError();
  }

  /** Makes the job waiting again, for any worker to take. */
  async returnToWait({ job, token }: TakenJob): Promise<never> {
    await job.moveToWait(token);
    throw new WaitingError();
  }

  /** Sends no command after the job's only run, since nothing is stored then. */
  async #clearStatus({ job, key }: TakenJob): Promise<void> {
    const { redis, prefix, driver } = this.#options;
    if (key === undefined || job.attemptsStarted <= 1) return;
    await clearStatus(redis, { prefix, driver, key });
  }

  /** @returns how many runs in a row, this one included, had this outcome */
  async #writeStatus(
    { job, key }: TakenJob,
    outcome: Exclude<Outcome, { readonly kind: 'done' }>,
  ): Promise<number> {
    if (key === undefined) return job.attemptsStarted;
    const { redis, prefix, driver, log } = this.#options;
    const place = { prefix, driver, key };
    const atMs = Date.now();
    const reason = shownReason(outcome.reason);
    const { infeasibleScope: scope, minDelayMs = 0 } = outcome.kind === 'retry' ? outcome : {};
    const { count, isNews } = await writeStatus(redis, place, {
      newsAfterMs: newsAfterMs(outcome),
      outcome: outcome.kind,
      reason,
      atMs,
      until: 'until' in outcome ? outcome.until : undefined,
      infeasible: scope === undefined ? undefined : { scope, untilMs: atMs + minDelayMs },
    });
    if (isNews) log.warn({ ...logFields(key), outcome: outcome.kind, reason }, 'run failed');
    return count;
  }
}

/** How long the reason of an outcome has to last before it is logged. That of a full gateway never
 * is: calls are made as fast as they may be. Nor is a wait for a turn, or for a driver that may
 * take so long. */
function newsAfterMs(outcome: Exclude<Outcome, { readonly kind: 'done' }>): number {
  if (outcome.kind === 'running' && outcome.isUsual === true) return Number.MAX_SAFE_INTEGER;
  if (outcome.kind !== 'later') return 0;
  if (outcome.isGatewayFull === true || outcome.isTurn === true) return Number.MAX_SAFE_INTEGER;
  return (outcome.delayMs ?? 0) < BLIP_MS ? BLIP_MS : 0;
}

import { DelayedError, type Job, WaitingError } from 'bullmq';
import type { RedisPlace } from '../redis/key-prefix.ts';
import type { WaitCondition } from '../rules/rule.ts';
import { type Backoff, backoffMs, timerMs } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { BLIP_MS } from '../runtime/outage.ts';
import { shorten } from '../runtime/printable.ts';
import { type JobKey, logFields } from './contract.ts';
import { clearStatus, writeStatus } from './status.ts';

/** A reason as Redis stores it and people see it: cut, since every key that waits keeps its reason.
 */
export function shownReason(reason: string): string {
  return shorten(reason, 2_000);
}

/** How a run ended. People see the reasons, so they must contain no secrets. */
export type Outcome =
  /** Nothing more to do for now. `needsNode`: no volume was created; the claim needs another node.
   */
  | { readonly kind: 'done'; readonly note?: string; readonly needsNode?: true }
  /** Failed. The next run comes after a back-off that grows with every failure, and after
   * `minDelayMs` at the earliest. `infeasibleScope`: an infeasible back-off, which no edit ends
   * while the class has this UID. `mayBeAtWork`: a call whose end is unknown may still be at work
   * in the driver. `until`: the next run comes within 5 s of a change of one of these objects, if
   * ingest may read it. */
  | {
      readonly kind: 'retry';
      readonly reason: string;
      readonly minDelayMs?: number;
      readonly infeasibleScope?: string;
      readonly mayBeAtWork?: true;
      readonly until?: readonly WaitCondition[];
    }
  /** Did not reach the driver, so it counts as no failure. `delayMs`: how long the cause lasts; the
   * next run comes no sooner. Without it the delay grows with every run in a row that ended so.
   * `isTurn`: nothing is wrong, and the next run comes exactly after `delayMs`. `isDriverDown`: no
   * key reaches the driver, so the worker takes no job until the driver answers. `isGatewayFull`:
   * the gateway forwards no more calls at once. `until`: the next run comes within 5 s of a change
   * of one of these objects. */
  | {
      readonly kind: 'later';
      readonly reason: string;
      readonly until?: readonly WaitCondition[];
      readonly delayMs?: number;
      readonly isTurn?: boolean;
      readonly isDriverDown?: boolean;
      readonly isGatewayFull?: boolean;
    }
  /** The driver or another run is still working on it; the next run asks again. `delayMs`: after
   * what time that work has surely ended, if known. `isUsual`: it may take that long. */
  | {
      readonly kind: 'running';
      readonly reason: string;
      readonly delayMs?: number;
      readonly isUsual?: boolean;
    }
  /** Fails until one of these objects changes. The next run comes within 5 s of the change, or
   * after the longest delay. */
  | { readonly kind: 'parked'; readonly reason: string; readonly until?: readonly WaitCondition[] };

/** Ends a run that has begun nothing yet when its worker stops. */
export const WORKER_STOPPING: Outcome = {
  kind: 'later',
  reason: 'this worker is stopping',
  delayMs: 0,
};

/* How long a key waits before its next run, by the outcome of its last one, for claims and volumes
 * (deletions) alike:
 *
 *   retry    grows with each failure from --retry-interval-start to --retry-interval-max, up to a
 *            quarter shorter or longer. The average is upstream's delay, so that the driver gets as
 *            many calls a day
 *   later    grows with each such run from 0.5 s to 30 s, full jitter; 0.5 s to 1 s while the
 *            driver's gateway is full; with `delayMs` that time and up to half as much again;
 *            exactly `delayMs` with `isTurn`
 *   running  grows with each such run from 1 s to 30 s; at most `delayMs` and half as much again
 *   parked   --retry-interval-max, unless its object changes before
 *
 * --retry-interval-max also limits the 30 s. jobs/start-workers.ts gives all consumers the same
 * Backoff; a separate one for deletions would be set there. */

/** Short at first, since these runs cost the driver nothing. */
const LATER: Backoff = { startMs: 500, maxMs: 30_000 };
const POLL: Backoff = { startMs: 1_000, maxMs: 30_000 };
const GATEWAY_FULL_MS = 1_000;
/** The longest jitter that is added to a wait whose end is known. */
const LONGEST_EXTRA_MS = 30_000;

/** Computes the delay after a failure: backoffMs, up to a quarter less or more, and at least
 * `minDelayMs`.
 * @param failures failures so far, this one included: 1 for the first
 * @param random  0 <= random < 1
 * @returns whole milliseconds, 1 or more: BullMQ retries at once on 0 and NaN, and gives up on -1
 *   */
export function retryDelayMs(
  failures: number,
  backoff: Backoff,
  random: number,
  minDelayMs = 0,
): number {
  const jitter = 0.75 + random / 2;
  return wholeMs(Math.max(backoffMs(backoff, failures) * jitter, minDelayMs));
}

/** Computes the delay before the next poll: in the upper half below a ceiling that grows as in
 * retryDelayMs, so that two polls are never close together. */
export function pollDelayMs(polls: number, backoff: Backoff, random: number): number {
  return wholeMs((backoffMs(backoff, polls) * (1 + random)) / 2);
}

/** Computes the delay after a run that counts as no failure.
 * @param runs how many runs in a row, this one included, had this outcome */
export function requeueDelayMs(
  outcome: Exclude<Outcome, { readonly kind: 'done' | 'retry' }>,
  runs: number,
  { maxMs }: Backoff,
  random: number,
): number {
  const cap = ({ startMs, maxMs: ownMaxMs }: Backoff): Backoff => ({
    startMs,
    maxMs: Math.min(ownMaxMs, maxMs),
  });
  switch (outcome.kind) {
    case 'later':
      if (outcome.isGatewayFull === true)
        return pollDelayMs(1, { startMs: GATEWAY_FULL_MS, maxMs }, random);
      return outcome.delayMs === undefined
        ? wholeMs(backoffMs(cap(LATER), runs) * random)
        : delayBeyondMs(outcome.delayMs, outcome.isTurn === true ? 0 : random);
    case 'running':
      return Math.min(
        pollDelayMs(runs, cap(POLL), random),
        outcome.delayMs === undefined ? Infinity : delayBeyondMs(outcome.delayMs, random),
      );
    case 'parked':
      // Up to a tenth more, so that keys that were parked together do not run together.
      return wholeMs(maxMs * (1 + random / 10));
  }
}

/** Computes the delay for something that ends in `waitMs`: never less, and up to half as much
 * again, so that the keys that wait for it do not all run at once. */
function delayBeyondMs(waitMs: number, random: number): number {
  return wholeMs(Math.ceil(waitMs) + Math.min(waitMs / 2, LONGEST_EXTRA_MS) * random);
}

/** Limits the delay to a timer's longest, since BullMQ would keep a job with Infinity for ever. */
function wholeMs(ms: number): number {
  return Number.isNaN(ms) ? 1000 : timerMs(Math.max(1, Math.round(ms)));
}

/** A job that BullMQ gave to this worker. */
export interface TakenJob {
  readonly job: Job;
  /** Token of the job's lock. */
  readonly token: string;
  /** Undefined for a job that this version can't read. */
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
    // BullMQ stores the stack in the job; the place of this `throw` is of no interest.
    this.stack = reason;
  }
}

/** Applies the outcome of a run to BullMQ, and writes the key's status. Logs a failure with a new
 * reason: at once or, if the run did not reach the driver, after the reason has lasted for a
 * second. */
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

  /** Returns the job to the queue, for any worker to take. */
  async returnToWait({ job, token }: TakenJob): Promise<never> {
    await job.moveToWait(token);
    throw new WaitingError();
  }

  /** Sends no command after the job's only run, which has stored nothing. */
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

/** How long a reason must last before it is logged. Never logs a full gateway, a wait with
 * `isTurn`, or a driver that may take that long. */
function newsAfterMs(outcome: Exclude<Outcome, { readonly kind: 'done' }>): number {
  if (outcome.kind === 'running' && outcome.isUsual === true) return Number.MAX_SAFE_INTEGER;
  if (outcome.kind !== 'later') return 0;
  if (outcome.isGatewayFull === true || outcome.isTurn === true) return Number.MAX_SAFE_INTEGER;
  return (outcome.delayMs ?? 0) < BLIP_MS ? BLIP_MS : 0;
}

import { DelayedError, type Job, WaitingError } from 'bullmq';
import type { RedisPlace } from '../redis/key-prefix.ts';
import type { WaitCondition } from '../rules/rule.ts';
import { type Backoff, backoffMs, timerMs } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { BLIP_MS } from '../runtime/outage.ts';
import { shorten } from '../runtime/printable.ts';
import { type JobKey, logFields } from './contract.ts';
import { clearStatus, writeStatus } from './status.ts';

/** A reason as it is stored and shown: cut, since every key that waits keeps its reason. */
export function shownReason(reason: string): string {
  return shorten(reason, 2_000);
}

/** How a run ended. Reasons are shown to people, so they must contain no secrets. */
export type Outcome =
  /** Nothing more to do for now. `needsNode`: no volume was made; the claim needs another node. */
  | { readonly kind: 'done'; readonly note?: string; readonly needsNode?: true }
  /** Failed. The next run comes after a back-off that grows with every failure, and after
   * `minDelayMs` at the earliest. `infeasibleScope`: the delay is an infeasible back-off, which no
   * edit ends as long as the scope (the UID of the claim's class) is the same. `mayBeAtWork`: a
   * call whose end is unknown may still be at work behind the driver. `until`: the next run comes
   * within 5 s of a change of one of these objects, if ingest may read it. */
  | {
      readonly kind: 'retry';
      readonly reason: string;
      readonly minDelayMs?: number;
      readonly infeasibleScope?: string;
      readonly mayBeAtWork?: true;
      readonly until?: readonly WaitCondition[];
    }
  /** Did not reach the driver, so it counts as no failure. `delayMs`: when what it waits for ends;
   * the next run comes no sooner. Without it the delay grows with every run in a row that ended so.
   * `isTurn`: nothing is wrong, it waits for that time; the next run comes exactly then.
   * `isDriverDown`: no other key would reach the driver either, so no job is taken until it
   * answers. `isGatewayFull`: other keys reach the driver, as many at once as its gateway allows.
   * `until`: the next run comes within 5 s of a change of one of these objects. */
  | {
      readonly kind: 'later';
      readonly reason: string;
      readonly until?: readonly WaitCondition[];
      readonly delayMs?: number;
      readonly isTurn?: boolean;
      readonly isDriverDown?: boolean;
      readonly isGatewayFull?: boolean;
    }
  /** The driver or another run still works on it; the next run polls it. `delayMs`: when that has
   * ended for sure, if known. `isUsual`: it may take that long. */
  | {
      readonly kind: 'running';
      readonly reason: string;
      readonly delayMs?: number;
      readonly isUsual?: boolean;
    }
  /** Fails until one of these objects changes: the next run comes within 5 s of that, or after the
   * longest delay. */
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
 *   retry    grows with each failure, from --retry-interval-start to --retry-interval-max, up to a
 *            quarter shorter or longer: on average the wait of upstream, which has no jitter, so
 *            that the driver gets as many calls a day
 *   later    grows with each such run from 0.5 s to 30 s, full jitter; 0.5 s to 1 s while the
 *            driver's gateway is full; a wait whose end is known takes that long and up to half as
 *            much again, or exactly that long where the end is the key's own
 *   running  grows with each such run from 1 s to 30 s; no longer than until its end where that is
 *            known, and up to half as much again
 *   parked   --retry-interval-max, unless its object changes before
 *
 * The 30 s are --retry-interval-max where that is shorter.
 *
 * jobs/start-workers.ts gives all consumers the same Backoff, of --retry-interval-start and
 * --retry-interval-max; one of its own for deletions would be set there. */

/** Short at first, since a run that did not reach the driver cost it nothing. */
const LATER: Backoff = { startMs: 500, maxMs: 30_000 };
const POLL: Backoff = { startMs: 1_000, maxMs: 30_000 };
const GATEWAY_FULL_MS = 1_000;
/** By how much a wait whose end is known is prolonged at most. */
const LONGEST_EXTRA_MS = 30_000;

/** How long to wait after a failure: as backoffMs says, and up to a quarter less or more, raised to
 * `minDelayMs`.
 * @param failures failures so far, this one included: 1 for the first
 * @param random  0 <= random < 1
 * @returns       whole milliseconds, 1 or more: BullMQ retries at once on 0 and NaN, and gives up
 *                on -1 */
export function retryDelayMs(
  failures: number,
  backoff: Backoff,
  random: number,
  minDelayMs = 0,
): number {
  const jitter = 0.75 + random / 2;
  return wholeMs(Math.max(backoffMs(backoff, failures) * jitter, minDelayMs));
}

/** How long to wait before polling again: in the upper half below a ceiling that grows as
 * retryDelayMs does, so that two polls are never close together. */
export function pollDelayMs(polls: number, backoff: Backoff, random: number): number {
  return wholeMs((backoffMs(backoff, polls) * (1 + random)) / 2);
}

/** How long to wait after a run that counts as no failure.
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

/** How long to wait for something that ends in `waitMs`, for many keys at once: never less, and up
 * to half as much again, so that they do not all run when it ends. */
function delayBeyondMs(waitMs: number, random: number): number {
  return wholeMs(Math.ceil(waitMs) + Math.min(waitMs / 2, LONGEST_EXTRA_MS) * random);
}

/** Caps the delay at a timer's longest, since BullMQ would keep a job with Infinity for ever. */
function wholeMs(ms: number): number {
  return Number.isNaN(ms) ? 1000 : timerMs(Math.max(1, Math.round(ms)));
}

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

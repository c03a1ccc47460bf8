import { type Backoff, backoffMs, timerMs } from '../runtime/clock.ts';
import { shorten } from '../runtime/printable.ts';
import type { WaitCondition } from '../rules/rule.ts';

/** A reason as it is stored and shown: cut, since every key that waits keeps its reason. */
export function shownReason(reason: string): string {
  return shorten(reason, 2_000);
}

/** How a run ended. apply-outcome.ts makes BullMQ act on it. Reasons are shown to people, so they
 * must contain no secrets. */
export type Outcome =
  /** Nothing more to do for now. `needsNode`: no volume was made; the claim needs another node. */
  | { readonly kind: 'done'; readonly note?: string; readonly needsNode?: true }
  /** Failed. The next run comes after a back-off that grows with every failure, and after
   * `minDelayMs` at the earliest. `infeasibleScope`: the delay is an infeasible back-off, which no
   * edit ends as long as the scope (the UID of the claim's class) is the same; see
   * Run.infeasibleBackoffMs. `mayBeAtWork`: a call whose end is unknown may still be at work behind
   * the driver. `until`: the next run comes within 5 s of a change of one of these objects, if
   * ingest may read it. */
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

/* How long a key waits before its next run, by the outcome of its last one, for claims, volumes
 * (deletions) and snapshots alike:
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

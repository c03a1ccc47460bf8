import { performance } from 'node:perf_hooks';
import { DOUBT } from '../explain/causes.ts';
import { GRACE_MS, PROVISIONING_PAUSE } from '../election/lease-view.ts';
import type { Marked } from '../queue/run.ts';
import type { Outcome } from '../queue/outcome.ts';
import { askRedis } from '../redis/ask-redis.ts';
import { signalWithin } from '../runtime/clock.ts';
import type { JobRun } from './dependencies.ts';

/* Before each call of the driver: the job is marked, and the driver's Lease allows the call
 * (docs/leak-proof.md, M1 to M3). */

/** A job that is marked, so that its run may call the driver. */
export interface MarkedJob {
  /** How long calls of earlier runs may still be at work, as it was right before the mark; see
   * Begun. What it says decides what a refusal proves, whenever that comes. */
  readonly leftMs: number | undefined;
  /** Calls of earlier runs may still have been at work then: a refusal proves nothing. */
  readonly isInDoubt: boolean;
  /** The gateway to call: the one that the leader has named, if any. */
  readonly endpoint: string;
  /** Unix ms after which no call may be sent. */
  readonly notAfterMs: number;
  /** For a write of the run to the API server: aborts when it may write nothing more. Until then a
   * write goes on while the process stops, so that an answer is not lost. By whichever of both
   * clocks has gone further: the one stands still while a machine is suspended, the other may be
   * set back.
   * @returns undefined if it is too late already */
  readonly writeSignal: () => AbortSignal | undefined;
  /** Takes the mark back: the call can have left nothing; see Marked. */
  readonly undo: (dropsPlace: boolean) => Promise<void>;
  /** Ends a run whose call has done the work. In doubt the job stays for as long as the mark says.
   */
  readonly finished: (note: string) => Outcome;
}

/** How old a read of the PV may be when a DeleteVolume is sent (invariant 6). */
export const MAX_READ_AGE_MS = 2_000;

/** How long a run waits for a leader that has just begun. */
const LEADER_WAIT_MS = 2_000;
const LEADER_PAUSE_MS = 20;
/** What the API server may need for a write whose sender has given up. */
const WRITE_MS = 10_000;

/** Marks the job, unless nothing may be begun now.
 * @param place  the topology that the call asks for, as JSON; '' for none
 * @param isBegun  the creation or deletion was begun, by this run or an earlier one
 * @returns the mark, or how the run ends without a call
 * @throws RedisUnavailable */
export async function markJob(
  jobRun: JobRun,
  place = '',
  isBegun = jobRun.begun.leftMs !== undefined,
): Promise<MarkedJob | { readonly outcome: Outcome }> {
  const { lease, doubtMs, clock, endpoint, run } = jobRun;
  if (!isBegun && lease.pause !== undefined) return { outcome: pausedBy(lease.pause) };
  const startedMs = performance.now();
  const startedAtMs = clock.nowMs();
  const marked = await askRedis(run.mark(doubtMs, place));
  if (marked.kind !== 'marked') return { outcome: whyNotMarked(marked) };
  const verdict = await waitForLease(jobRun, marked);
  if (verdict.kind !== 'may') {
    await askRedis(marked.undo(false));
    return {
      outcome:
        verdict.kind === 'paused'
          ? pausedBy(verdict.reason)
          : { kind: 'later', reason: verdict.reason },
    };
  }
  const nowMs = performance.now();
  const passedMs = (): number =>
    Math.max(performance.now() - startedMs, clock.nowMs() - startedAtMs);
  const { leftMs } = marked;
  const isInDoubt = leftMs !== undefined && leftMs > 0;
  return {
    leftMs,
    isInDoubt,
    endpoint: marked.endpoint === '' ? endpoint : marked.endpoint,
    notAfterMs: clock.nowMs() + Math.min(GRACE_MS - passedMs(), verdict.untilMs - nowMs),
    writeSignal() {
      const writeMs = doubtMs - WRITE_MS - passedMs();
      return writeMs > 0 ? signalWithin(new AbortController().signal, writeMs) : undefined;
    },
    undo: (dropsPlace) => askRedis(marked.undo(dropsPlace)),
    finished: (note) => finished(note, isInDoubt ? doubtMs : undefined),
  };
}

function whyNotMarked(marked: Exclude<Marked, { kind: 'marked' }>): Outcome {
  switch (marked.kind) {
    case 'other-history':
      return { kind: 'later', reason: 'Redis has lost its data: the leader looks at all claims' };
    case 'lock-lost':
      return { kind: 'later', reason: 'another run has this job by now' };
    case 'wait':
      return {
        kind: 'later',
        reason: 'calls of another gateway of the driver may be under way',
        delayMs: marked.waitMs,
      };
  }
}

async function waitForLease(
  { lease, clock, run }: JobRun,
  { history, leftMs }: Extract<Marked, { kind: 'marked' }>,
) {
  const endMs = performance.now() + LEADER_WAIT_MS;
  for (;;) {
    const verdict = lease.judge(history, leftMs !== undefined);
    if (verdict.kind !== 'unclear' || performance.now() > endMs || run.signal.aborted)
      return verdict;
    await clock.sleep(LEADER_PAUSE_MS, run.signal);
  }
}

/** Ends the run of a key for which nothing may be begun now. */
function pausedBy(reason: string): Outcome {
  return { kind: 'later', reason: `nothing new is begun: ${reason}`, until: [PROVISIONING_PAUSE] };
}

/** Ends a run that has brought its object to an end (M4): its job ends too, unless calls of
 * earlier runs may still be at work in the driver.
 * @param leftMs  for how long; see Begun */
export function finished(note: string, leftMs: number | undefined): Outcome {
  if (leftMs === undefined || leftMs <= 0) return { kind: 'done', note };
  return { kind: 'later', reason: `${note}; ${DOUBT}`, delayMs: leftMs, isTurn: true };
}

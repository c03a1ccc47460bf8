import { performance } from 'node:perf_hooks';
import { DOUBT } from '../explain/causes.ts';
import { GRACE_MS, PROVISIONING_PAUSE } from '../election/lease-view.ts';
import { DEFAULT_TIMEOUT_MS } from '../kube/request-sender.ts';
import type { Marked } from '../queue/run.ts';
import type { Outcome } from '../queue/outcome.ts';
import { askRedis } from '../redis/ask-redis.ts';
import type { JobRun } from './dependencies.ts';

/* Before each call to the driver the run marks the job, and checks that the driver's Lease allows
 * the call (docs/leak-proof.md, M1 to M3). */

/** A job that is marked, so that its run may call the driver. */
export interface MarkedJob {
  /** How long calls of earlier runs could still be at work right before the mark; see Begun. This
   * decides what a refusal proves, however late the refusal comes. */
  readonly leftMs: number | undefined;
  /** Whether calls of earlier runs could be at work right before the mark. Then a refusal proves
   * nothing. */
  readonly isInDoubt: boolean;
  /** The gateway to call. */
  readonly endpoint: string;
  /** Unix ms after which no call may be sent. */
  readonly notAfterMs: number;
  /** For how long the run's write to the API server may take. A write that was begun goes on at
   * shutdown, so that no answer of the driver is lost. It goes by the clock that has advanced
   * further: the monotonic clock stops while a machine is suspended, and the system clock may be
   * set back.
   * @returns undefined if it is too late already */
  readonly writeLimitMs: () => number | undefined;
  /** Takes the mark back after a call that can't have created anything; see Marked. */
  readonly undo: (dropsPlace: boolean) => Promise<void>;
  /** Ends a run whose call succeeded. A job in doubt stays until its mark has expired. */
  readonly finished: (note: string) => Outcome;
}

/** How old a read of the PV may be when a DeleteVolume is sent (invariant 6). */
export const MAX_READ_AGE_MS = 2_000;

/** How long a run waits until the Lease says clearly who leads. */
const LEADER_WAIT_MS = 2_000;
const LEADER_PAUSE_MS = 20;
/** How long the API server may still carry out a write after its sender gave up. */
const WRITE_MS = 10_000;

/** Marks the job, if its driver may be called now.
 * @param place  the topology that the call asks for, as JSON; '' for none
 * @param isBegun  whether this run or an earlier one has begun the creation or deletion
 * @returns the mark, or the outcome of a run that may not call
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
    writeLimitMs() {
      const limitMs = Math.min(doubtMs - WRITE_MS - passedMs(), DEFAULT_TIMEOUT_MS);
      return limitMs > 0 ? limitMs : undefined;
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
      return { kind: 'later', reason: 'another worker has taken over this job' };
    case 'wait':
      return {
        kind: 'later',
        reason: 'calls through another gateway of the driver may still be under way',
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

/** Ends a run in a provisioning pause. */
function pausedBy(reason: string): Outcome {
  return { kind: 'later', reason: `nothing new is begun: ${reason}`, until: [PROVISIONING_PAUSE] };
}

/** Ends a run whose object needs nothing more (M4). The job stays while calls of earlier runs may
 * be at work in the driver.
 * @param leftMs  for how long; see Begun */
export function finished(note: string, leftMs: number | undefined): Outcome {
  if (leftMs === undefined || leftMs <= 0) return { kind: 'done', note };
  return { kind: 'later', reason: `${note}; ${DOUBT}`, delayMs: leftMs, isTurn: true };
}

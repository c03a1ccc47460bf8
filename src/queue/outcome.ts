import type { WaitCondition } from '../volumes/refused-error.ts';

/** Longer than anyone reads. */
const MAX_REASON_LENGTH = 8_192;

/** A reason as it is stored and shown: cut, since a driver's message may be very long and every key
 * that waits keeps its reason. */
export function shownReason(reason: string): string {
  return reason.length <= MAX_REASON_LENGTH ? reason : `${reason.slice(0, MAX_REASON_LENGTH - 1)}…`;
}

/** How a run ended. apply-outcome.ts turns it into what BullMQ does with the job next, and
 * backoff.ts says when the next run comes. Reasons are shown to people: no secrets in them. */
export type Outcome =
  /** Nothing more to do for now. */
  | { readonly kind: 'done'; readonly note?: string }
  /** Failed. The next run comes after a back-off that grows with every failure, and after
   * `minDelayMs` at the earliest. `isAbsent`: it is proven that no volume was made. `holdOffScope`:
   * the delay is a hold-off, which no edit ends while the key asks for this scope; see
   * Run.heldOffMs. */
  | {
      readonly kind: 'retry';
      readonly reason: string;
      readonly error?: unknown;
      readonly minDelayMs?: number;
      readonly isAbsent?: true;
      readonly holdOffScope?: string;
    }
  /** Did not reach the driver, so it counts as no failure. Without `delayMs` the delay grows with
   * every run in a row that ended so. `isDriverDown`: no other key would reach the driver either,
   * so the circuit breaker opens. */
  | {
      readonly kind: 'later';
      readonly reason: string;
      readonly delayMs?: number;
      readonly isDriverDown?: boolean;
    }
  /** The driver still works on it; the next run asks again. */
  | { readonly kind: 'running'; readonly reason: string }
  /** Fails until one of these objects changes: the next run comes when one does, or after the
   * longest delay. */
  | { readonly kind: 'parked'; readonly reason: string; readonly until?: readonly WaitCondition[] };

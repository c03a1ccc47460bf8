/** An object whose change ends a wait. */
export interface WaitCondition {
  /** Plural name of its resource, as in the API's URLs: "secrets". */
  readonly resource: string;
  readonly namespace?: string;
  readonly name: string;
  /** Its resourceVersion as the run saw it, '' where it was not there: another one promotes the
   * key. Absent: only an edit of its own object does. */
  readonly seen?: string;
}

/** Far more than anybody reads. */
const MAX_REASON_LENGTH = 8_192;

/** A reason as it is kept and shown. Drivers may say very much, and every key that waits keeps its
 * reason. */
export function shownReason(reason: string): string {
  return reason.length <= MAX_REASON_LENGTH ? reason : `${reason.slice(0, MAX_REASON_LENGTH - 1)}…`;
}

/** How a run ended. Only queue/consumer.ts turns it into what BullMQ does next. Reasons are shown
 * to people: no secrets in them. */
export type Outcome =
  /** Nothing more to do for now. */
  | { readonly kind: 'done'; readonly note?: string }
  /** Failed; the wait grows with every failure (capped exponential, full jitter), and is
   * `minDelayMs` at least. `isAbsent`: it is proven that no volume was made. `holdOffScope`:
   * nothing but its time ends this wait, as long as the run's question is about this; see
   * Run.heldOffMs. */
  | {
      readonly kind: 'retry';
      readonly reason: string;
      readonly error?: unknown;
      readonly minDelayMs?: number;
      readonly isAbsent?: true;
      readonly holdOffScope?: string;
    }
  /** Did not reach the driver: no failed attempt. Without `delayMs` the wait grows by a counter of
   * its own. `isDriverDown`: nor would any other key, so the queue pauses but for one run at a
   * time. */
  | {
      readonly kind: 'later';
      readonly reason: string;
      readonly delayMs?: number;
      readonly isDriverDown?: boolean;
    }
  /** The driver is still at it: polled gently. */
  | { readonly kind: 'running'; readonly reason: string }
  /** Fails until one of some objects changes: run again when it does, and at the longest wait. */
  | { readonly kind: 'parked'; readonly reason: string; readonly until?: readonly WaitCondition[] };

export type OutcomeKind = Outcome['kind'];

import { shorten } from '../runtime/printable.ts';
import type { WaitCondition } from '../rules/rule.ts';

/** A reason as it is stored and shown: cut, since every key that waits keeps its reason. */
export function shownReason(reason: string): string {
  return shorten(reason, 2_000);
}

/** How a run ended. apply-outcome.ts makes BullMQ act on it, and backoff.ts computes when the next
 * run comes. Reasons are shown to people, so they must contain no secrets. */
export type Outcome =
  /** Nothing more to do for now. `needsNode`: no volume was made; the claim needs another node. */
  | { readonly kind: 'done'; readonly note?: string; readonly needsNode?: true }
  /** Failed. The next run comes after a back-off that grows with every failure, and after
   * `minDelayMs` at the earliest. `isAbsent`: it is proven that no volume was made. `holdOffScope`:
   * the delay is a hold-off, which no edit ends as long as the scope (the UID of the claim's class)
   * is the same; see Run.heldOffMs. */
  | {
      readonly kind: 'retry';
      readonly reason: string;
      readonly minDelayMs?: number;
      readonly isAbsent?: true;
      readonly holdOffScope?: string;
    }
  /** Did not reach the driver, so it counts as no failure. `delayMs`: when what it waits for ends;
   * the next run comes no sooner. Without it the delay grows with every run in a row that ended so.
   * `isDriverDown`: no other key would reach the driver either, so the circuit breaker opens.
   * `isGatewayFull`: other keys reach the driver, as many at once as its gateway allows, so the
   * circuit breaker stays or becomes closed. `until`: the next run comes at once when one of these
   * objects changes. */
  | {
      readonly kind: 'later';
      readonly reason: string;
      readonly until?: readonly WaitCondition[];
      readonly delayMs?: number;
      readonly isDriverDown?: boolean;
      readonly isGatewayFull?: boolean;
    }
  /** The driver or another run still works on it; the next run polls it. `delayMs`: when that has
   * ended for sure, if known. */
  | { readonly kind: 'running'; readonly reason: string; readonly delayMs?: number }
  /** Fails until one of these objects changes: the next run comes when one does, or after the
   * longest delay. */
  | { readonly kind: 'parked'; readonly reason: string; readonly until?: readonly WaitCondition[] };

/** Ends a run that has begun nothing yet when its worker stops. */
export const WORKER_STOPPING: Outcome = {
  kind: 'later',
  reason: 'this worker is stopping',
  delayMs: 0,
};

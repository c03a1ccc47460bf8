/* Which of a driver's gateways gets the controller calls. Pure: from what was seen of each one and
 * the one that is named, to what is to be named.
 *
 * Replicas of a driver serialise calls by locks in their own processes, so two of them must not be
 * at work at once. Before another one gets calls, those of ours at the active one must have ended:
 *
 * - drained: it said that it forwards nothing more and that nothing is under way. The other one
 * gets calls at once. - gone after it began to drain: what was under way then ends by its deadline.
 * The other one gets calls one operation timeout later. - unreachable for longer than the operation
 * timeout, twice in a row at least: whatever reached it before has met its deadline. Workers may
 * have reached it when we
 * could not, so the other one gets calls only another operation timeout later: what was sent before
 * the move, at once after its record was opened, has met its
 * deadline then. - not among the gateways any more: nobody watches it, so a whole ownership of a
 * volume record passes, past which no run sends anything.
 *
 * That is for the driver as a whole. For one volume the record is stricter (rule 7): after a call
 * of unknown end it goes to another gateway only once that call has settled, whatever was seen
 * here. So a run that is held up between opening and sending, a worker with another view of the
 * network, or a leader that errs can bring two replicas to work at once on different volumes, never
 * on the same one. */

/** What the last probes of one gateway said. */
export type GatewayHealth =
  | { readonly kind: 'unknown' }
  | { readonly kind: 'reachable' }
  /** It forwards nothing more; `running` volumes have calls under way. */
  | { readonly kind: 'draining'; readonly running: number }
  /** Since when, at the earliest, no probe was answered, and how many in a row. */
  | {
      readonly kind: 'unreachable';
      readonly sinceMs: number;
      readonly probes: number;
      readonly reason: string;
      readonly wasDraining: boolean;
    };

export interface FailoverInput {
  /** By address, in the order of the flag. */
  readonly candidates: ReadonlyMap<string, GatewayHealth>;
  /** '' = none is named. */
  readonly current: string;
  readonly nowMs: number;
  readonly timeoutMs: number;
  /** How long an attempt owns its volume record. */
  readonly ownershipMs: number;
}

export type FailoverDecision =
  | { readonly kind: 'keep' }
  /** Calls at the one before may be under way for `waitMs` more. */
  | { readonly kind: 'move'; readonly to: string; readonly waitMs: number; readonly why: string }
  /** `why` also where the active one is to be left and there is none to move to. */
  | { readonly kind: 'none'; readonly why: string };

/** Decides. Sticky: as long as the named one may be used it stays. */
export function decideFailover(input: FailoverInput): FailoverDecision {
  const { candidates, current } = input;
  const [only] = candidates.keys();
  if (only === undefined) return { kind: 'none', why: 'no gateway is configured' };
  const reason = current === '' ? { why: 'none was named', waitMs: 0 } : reasonToLeave(input);
  if (reason === undefined) return { kind: 'keep' };
  // Where there is no choice nothing need be seen of it: a driver that is down is a worker's
  // business.
  if (candidates.size === 1 && only !== current) return { kind: 'move', to: only, ...reason };
  const next = [...candidates].find(
    ([address, sight]) => address !== current && sight.kind === 'reachable',
  )?.[0];
  return next === undefined
    ? { kind: 'none', why: `${reason.why}; no other gateway is reachable` }
    : { kind: 'move', to: next, ...reason };
}

/** Why the active one is to be left, and how long its calls may still be under way; undefined = it
 * stays. */
function reasonToLeave({
  candidates,
  current,
  nowMs,
  timeoutMs,
  ownershipMs,
}: FailoverInput): { why: string; waitMs: number } | undefined {
  const sight = candidates.get(current);
  switch (sight?.kind) {
    case undefined:
      return { why: `${current} is not among the gateways any more`, waitMs: ownershipMs };
    case 'unknown':
    case 'reachable':
      return undefined;
    case 'draining':
      return sight.running === 0 ? { why: 'it is drained', waitMs: 0 } : undefined;
    case 'unreachable': {
      if (sight.wasDraining) return { why: 'it has shut down', waitMs: timeoutMs };
      const downMs = nowMs - sight.sinceMs;
      if (sight.probes < 2 || downMs <= timeoutMs) return undefined;
      return { why: `it is unreachable for ${downMs} ms: ${sight.reason}`, waitMs: timeoutMs };
    }
  }
}

/** What a probe found. */
export type ProbeResult =
  | { readonly kind: 'answered' }
  | { readonly kind: 'draining'; readonly running: number }
  | { readonly kind: 'failed'; readonly reason: string };

/** What is known of a gateway after one more probe.
 * @param startedMs  when the probe began */
export function afterProbe(
  before: GatewayHealth,
  result: ProbeResult,
  startedMs: number,
): GatewayHealth {
  switch (result.kind) {
    case 'answered':
      return { kind: 'reachable' };
    case 'draining':
      return { kind: 'draining', running: result.running };
    case 'failed': {
      if (before.kind === 'unreachable')
        return { ...before, probes: before.probes + 1, reason: result.reason };
      return {
        kind: 'unreachable',
        sinceMs: startedMs,
        probes: 1,
        reason: result.reason,
        wasDraining: before.kind === 'draining',
      };
    }
  }
}

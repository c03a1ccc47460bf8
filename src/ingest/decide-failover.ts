/* Decides which of a driver's gateways is active, that is, gets the controller calls. Pure: its
 * input is the health of the gateways, and the gateway that is active now.
 *
 * Vendors run a driver with several replicas, each with a gateway. A replica serialises calls by
 * locks in its own process, so two replicas must not work at the same time: calls move to another
 * gateway only after the calls to the active one have ended. The active gateway changes when it
 *
 * - is drained: it reports that it forwards no new calls and that no call is under way. The other
 *   gateway gets calls at once.
 * - has been unreachable for longer than --timeout, in two or more probes: the other gateway gets
 *   calls after one more --timeout, because workers may still have reached the old one.
 * - was removed from --gateway, or its pod ended before this ingest led, so that it is not probed:
 *   the other gateway gets calls when no earlier call can be at work any more.
 *
 * Two replicas may still work at once if a run is delayed between marking its job and sending, if
 * a worker's network fails and the leader's does not, or while there are two leaders. Calls about
 * one volume are idempotent, creations by the volume's name, so this does no harm. */

/** What the last probes of a gateway found. */
export type GatewayHealth =
  /** Not probed yet. */
  | { readonly kind: 'unknown' }
  | { readonly kind: 'reachable' }
  /** It forwards no new calls; its driver may be at work on `running` volumes. */
  | { readonly kind: 'draining'; readonly running: number }
  | {
      readonly kind: 'unreachable';
      /** When the first failed probe began. */
      readonly sinceMs: number;
      /** How many probes failed in a row. */
      readonly probes: number;
      readonly reason: string;
    };

export interface FailoverInput {
  /** By address, in the order of the pool. */
  readonly health: ReadonlyMap<string, GatewayHealth>;
  /** Address of the active gateway; '' = none yet. */
  readonly active: string;
  readonly nowMs: number;
  /** Deadline of one driver call. */
  readonly timeoutMs: number;
  /** How long a call may be at work after its job was marked. */
  readonly doubtMs: number;
}

export type FailoverDecision =
  | { readonly kind: 'keep' }
  /** Calls to the previous gateway may be under way for `waitMs` more. */
  | { readonly kind: 'move'; readonly to: string; readonly waitMs: number; readonly why: string }
  /** A gateway is needed, and none is usable. */
  | { readonly kind: 'none'; readonly why: string };

/** Decides which gateway is active from now on. */
export function decideFailover(input: FailoverInput): FailoverDecision {
  const { health, active } = input;
  const [first] = health.keys();
  if (first === undefined) return { kind: 'none', why: 'there is no gateway' };
  const reason = active === '' ? { why: 'none was named', waitMs: 0 } : reasonToLeave(input);
  if (reason === undefined) return { kind: 'keep' };
  // A single gateway is named even if it is unreachable: workers then report the driver as down.
  if (health.size === 1 && first !== active) return { kind: 'move', to: first, ...reason };
  for (const [address, { kind }] of health)
    if (address !== active && kind === 'reachable') return { kind: 'move', to: address, ...reason };
  return { kind: 'none', why: `${reason.why}; no other gateway is reachable` };
}

/** Why calls should leave the active gateway, and how long its calls may still be under way;
 * undefined = it stays. */
function reasonToLeave(input: FailoverInput): { why: string; waitMs: number } | undefined {
  const { active, timeoutMs } = input;
  const found = input.health.get(active);
  switch (found?.kind) {
    case undefined:
      return { why: `${active} is no longer there`, waitMs: input.doubtMs };
    case 'unknown':
    case 'reachable':
      return undefined;
    case 'draining':
      return found.running === 0 ? { why: 'it is drained', waitMs: 0 } : undefined;
    case 'unreachable': {
      const downMs = input.nowMs - found.sinceMs;
      if (found.probes < 2 || downMs <= timeoutMs) return undefined;
      return { why: `it is unreachable for ${downMs} ms: ${found.reason}`, waitMs: timeoutMs };
    }
  }
}

/** What one probe found. */
export type ProbeResult =
  | Extract<GatewayHealth, { readonly kind: 'reachable' | 'draining' }>
  | { readonly kind: 'failed'; readonly reason: string };

/** The health of a gateway after one more probe.
 * @param startedMs  when the probe began */
export function healthAfterProbe(
  before: GatewayHealth,
  result: ProbeResult,
  startedMs: number,
): GatewayHealth {
  if (result.kind !== 'failed') return result;
  const { reason } = result;
  // It reported that no call was under way, so it stays drained.
  if (before.kind === 'draining' && before.running === 0) return before;
  if (before.kind === 'unreachable') return { ...before, probes: before.probes + 1, reason };
  return { kind: 'unreachable', sinceMs: startedMs, probes: 1, reason };
}

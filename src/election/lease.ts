/** What a Lease says about who leads. Times are Unix milliseconds of the writer's clock and never
 * compared with ours. */
export interface LeaseRecord {
  /** Empty: released. */
  readonly holder: string;
  readonly durationMs: number;
  readonly acquiredMs: number;
  readonly renewedMs: number;
  /** How often the holder changed. */
  readonly transitions: number;
}

/** The record as last seen to change, and when that was by our clock. */
export interface Observation {
  readonly record: LeaseRecord;
  readonly atMs: number;
}

/** What to do with the Lease now. */
export type Decision =
  | { readonly kind: 'create'; readonly record: LeaseRecord }
  | { readonly kind: 'update'; readonly record: LeaseRecord }
  /** Another holds it, for `forMs` more as far as we can tell. */
  | { readonly kind: 'wait'; readonly holder: string; readonly forMs: number };

export interface Candidate {
  readonly identity: string;
  readonly leaseDurationMs: number;
  /** Whether this candidate leads as far as it knows. */
  readonly leading: boolean;
}

/** Client-go's rules: a Lease is free when nobody holds it, or when its record did not change for
 * its whole duration while we looked on. The clocks of two machines are never compared. */
export function decide(
  seen: Observation | undefined,
  candidate: Candidate,
  nowMs: number,
): Decision {
  const { identity, leaseDurationMs } = candidate;
  const fresh = {
    holder: identity,
    durationMs: leaseDurationMs,
    acquiredMs: nowMs,
    renewedMs: nowMs,
    transitions: 0,
  };
  if (seen === undefined) return { kind: 'create', record: fresh };
  const { record, atMs } = seen;
  if (record.holder === identity) {
    // Ours already; after a loss that nobody noticed it counts as acquired anew.
    return {
      kind: 'update',
      record: {
        ...fresh,
        acquiredMs: candidate.leading ? record.acquiredMs : nowMs,
        transitions: record.transitions,
      },
    };
  }
  const forMs = atMs + record.durationMs - nowMs;
  if (record.holder !== '' && forMs > 0) return { kind: 'wait', holder: record.holder, forMs };
  return { kind: 'update', record: { ...fresh, transitions: record.transitions + 1 } };
}

/** The record that lets the next one lead at once. */
export function released(record: LeaseRecord, nowMs: number): LeaseRecord {
  return {
    holder: '',
    durationMs: 1000,
    acquiredMs: nowMs,
    renewedMs: nowMs,
    transitions: record.transitions,
  };
}

export function sameRecord(a: LeaseRecord, b: LeaseRecord): boolean {
  return (
    a.holder === b.holder &&
    a.durationMs === b.durationMs &&
    a.acquiredMs === b.acquiredMs &&
    a.renewedMs === b.renewedMs &&
    a.transitions === b.transitions
  );
}

const JITTER_FACTOR = 1.2;

/** How long to wait before trying again to acquire: the period and up to 1.2 of it more, so that
 * candidates don't knock together.
 * @param random 0 <= random < 1 */
export function acquireDelayMs(retryPeriodMs: number, random: number): number {
  return retryPeriodMs * (1 + JITTER_FACTOR * random);
}

export interface LeaseTimes {
  readonly leaseDurationMs: number;
  readonly renewDeadlineMs: number;
  readonly retryPeriodMs: number;
}

/** Why these times can't work together; undefined when they can. */
export function leaseTimesProblem(times: LeaseTimes): string | undefined {
  const { leaseDurationMs, renewDeadlineMs, retryPeriodMs } = times;
  if (leaseDurationMs < 1000) return '--leader-election-lease-duration must be 1s or more';
  if (retryPeriodMs <= 0) return '--leader-election-retry-period must be more than 0';
  if (leaseDurationMs <= renewDeadlineMs)
    return '--leader-election-lease-duration must be longer than --leader-election-renew-deadline';
  if (renewDeadlineMs <= JITTER_FACTOR * retryPeriodMs) {
    return `--leader-election-renew-deadline must be longer than ${JITTER_FACTOR} times --leader-election-retry-period`;
  }
  return undefined;
}

/** The Lease of a driver, named as external-provisioner names it: not lower-cased, not shortened.
 * @see spec: "ebs.csi.aws.com" is "ebs-csi-aws-com", "test!driver/foo" is "test-driver-foo",
 *   "driver\" is "driver-X" */
export function leaseName(driver: string): string {
  const name = driver.replaceAll(/[^A-Za-z0-9-]/g, '-');
  return name.endsWith('-') ? `${name}X` : name;
}

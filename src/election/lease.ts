import { isDeepStrictEqual } from 'node:util';
import { UsageError } from '../runtime/flags.ts';

/** Prefix of sutler's identities as holder of a Lease. Upstream's identities are host names, which
 * can't contain '_'. */
export const IDENTITY_PREFIX = 'sutler_';

/** The holder if it is another provisioner.
 * @param holder  the identity that holds the Lease; undefined: none */
export function otherHolder(holder: string | undefined): string | undefined {
  return holder?.startsWith(IDENTITY_PREFIX) === true ? undefined : holder;
}

/** The spec of a Lease. Times are Unix ms of the writer's clock; they are never compared with the
 * local clock. */
export interface LeaseRecord {
  /** '' = released. */
  readonly holder: string;
  readonly durationMs: number;
  readonly acquiredMs: number;
  readonly renewedMs: number;
  /** How often the holder changed. */
  readonly transitions: number;
}

/** A Lease as read from its store. */
export interface StoredLease {
  readonly record: LeaseRecord;
  readonly annotations: Readonly<Record<string, string>>;
  /** Opaque. The API server refuses an update of another version. */
  readonly version: string;
}

/** The Lease as last read, and when its present record was first read, by the local clock. */
export interface Observation extends StoredLease {
  readonly atMs: number;
}

/** The part of it that says whether the Lease is free. */
type SeenRecord = Pick<Observation, 'record' | 'atMs'>;

/** The observation after a read of the Lease. A record that has not changed keeps its time.
 * @param read  undefined: there is no Lease */
export function observe(
  seen: Observation | undefined,
  read: StoredLease | undefined,
  nowMs: number,
): Observation | undefined {
  if (read === undefined) return undefined;
  // If the local clock was set back, the time begins anew; else the record would last too long.
  const isKnown = seen !== undefined && seen.atMs <= nowMs;
  const isSame = isKnown && isDeepStrictEqual(seen.record, read.record);
  return { ...read, atMs: isSame ? seen.atMs : nowMs };
}

/** Who holds the Lease; undefined: nobody, or its time is over. */
export function holderOf(seen: SeenRecord | undefined, nowMs: number): string | undefined {
  if (seen === undefined) return undefined;
  const { holder, durationMs } = seen.record;
  return holder === '' || nowMs - seen.atMs >= durationMs ? undefined : holder;
}

export type Decision =
  | { readonly kind: 'write'; readonly record: LeaseRecord }
  /** Another process holds it, for `forMs` ms at least. */
  | { readonly kind: 'wait'; readonly forMs: number };

export interface Candidate {
  readonly identity: string;
  readonly leaseDurationMs: number;
  /** The candidate has acquired the Lease and has not noticed a loss. */
  readonly isLeading: boolean;
}

/** Decides what to do with the Lease, by the rules of client-go
 * tools/leaderelection/leaderelection.go tryAcquireOrRenew: a Lease is free when it has no holder,
 * or when its record has not changed for its whole duration, measured by the local clock alone. */
export function decide(
  seen: SeenRecord | undefined,
  { identity, leaseDurationMs, isLeading }: Candidate,
  nowMs: number,
): Decision {
  const fresh = {
    holder: identity,
    durationMs: leaseDurationMs,
    acquiredMs: nowMs,
    renewedMs: nowMs,
    transitions: 0,
  };
  if (seen === undefined) return { kind: 'write', record: fresh };
  const { holder, transitions, durationMs } = seen.record;
  if (holder === identity) {
    // A candidate that lost the Lease without another holder acquires it again.
    const acquiredMs = isLeading ? seen.record.acquiredMs : nowMs;
    return { kind: 'write', record: { ...fresh, acquiredMs, transitions } };
  }
  const forMs = seen.atMs + durationMs - nowMs;
  if (holder !== '' && forMs > 0) return { kind: 'wait', forMs };
  return { kind: 'write', record: { ...fresh, transitions: transitions + 1 } };
}

/** The record of a released Lease, which another process may acquire at once. */
export function releaseRecord(record: LeaseRecord, nowMs: number): LeaseRecord {
  return { ...record, holder: '', durationMs: 1000, acquiredMs: nowMs, renewedMs: nowMs };
}

const JITTER_FACTOR = 1.2;

/** How long to wait before the next try to acquire: the period and up to 1.2 periods more, so that
 * candidates don't try at the same time.
 * @param random  0 <= random < 1 */
export function acquireDelayMs(retryPeriodMs: number, random: number): number {
  return retryPeriodMs * (1 + JITTER_FACTOR * random);
}

export interface LeaseTimes {
  readonly leaseDurationMs: number;
  readonly renewDeadlineMs: number;
  readonly retryPeriodMs: number;
}

/** @throws UsageError if the times don't fit together */
export function checkLeaseTimes(times: LeaseTimes): void {
  const { leaseDurationMs, renewDeadlineMs, retryPeriodMs } = times;
  if (leaseDurationMs < 1000)
    throw new UsageError('--leader-election-lease-duration must be 1s or more');
  if (retryPeriodMs <= 0)
    throw new UsageError('--leader-election-retry-period must be more than 0');
  if (leaseDurationMs <= renewDeadlineMs)
    throw new UsageError(
      '--leader-election-lease-duration must be longer than --leader-election-renew-deadline',
    );
  if (renewDeadlineMs <= JITTER_FACTOR * retryPeriodMs)
    throw new UsageError(
      `--leader-election-renew-deadline must be longer than ${JITTER_FACTOR} times ` +
        '--leader-election-retry-period',
    );
}

/** The name of a driver's Lease, as csi-lib-utils leaderelection/leader_election.go sanitizeName
 * makes it: not lower-cased, not shortened. "ebs.csi.aws.com" becomes "ebs-csi-aws-com". */
export function leaseName(driver: string): string {
  const name = driver.replaceAll(/[^A-Za-z0-9-]/g, '-');
  return name.endsWith('-') ? `${name}X` : name;
}

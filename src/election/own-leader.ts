import { performance } from 'node:perf_hooks';
import type { Claim } from '../kube/objects.ts';
import type { CallVerdict, LeaseView, SeenLease } from './lease-view.ts';
import { pauseOf } from './lease-view.ts';

/** Which claim. */
interface ClaimKey {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
}

/** Who leads, as far as this process knows. Its fields change. */
export interface LeadStatus {
  readonly isLeader: boolean;
  /** For how long this process leads without another renewal of the Lease, in ms. */
  readonly leadsForMs: number;
  readonly holder: string | undefined;
  /** How often the Lease has changed its holder; 0: not known. */
  readonly transitions: number;
}

/** Ingest and jobs are one process with a Redis of its own, so jobs asks ingest who leads. No other
 * process sees what this Redis holds: while another one leads, this one calls nothing. */
export class OwnLeader implements LeaseView {
  /** The only node that the process serves; undefined for all. */
  readonly node: string | undefined;
  /** A claim as it was a moment ago: for the first run of its job. It never goes through Redis. */
  freshClaim: (key: ClaimKey) => Claim | undefined = () => undefined;
  #status: LeadStatus | undefined;
  #history: string | undefined;
  #seen: () => SeenLease | undefined = () => undefined;

  constructor(node?: string) {
    this.node = node;
  }

  /** @param seen  the driver's Lease, where this account may read it */
  follow(status: LeadStatus, seen: () => SeenLease | undefined): void {
    this.#status = status;
    this.#seen = seen;
  }

  /** The leader has begun with this history of Redis' data; undefined: it has to begin anew. */
  confirm(history: string | undefined): void {
    this.#history = history;
  }

  /** @param freshClaim  a claim as ingest's watch shows it, if that has brought something lately */
  showClaims(freshClaim: OwnLeader['freshClaim']): void {
    this.freshClaim = freshClaim;
  }

  get pause(): string | undefined {
    const { isLeader, holder = 'no process' } = this.#status ?? {};
    if (isLeader !== true) return `${holder} leads, and this process waits for the Lease`;
    const seen = this.#seen();
    // Its own Lease, which it holds or does not need.
    return seen === undefined ? undefined : pauseOf({ ...seen, lease: withoutHolder(seen) });
  }

  judge(history: string, isBegun: boolean): CallVerdict {
    const { isLeader = false, leadsForMs = 0 } = this.#status ?? {};
    if (!isLeader || (!isBegun && this.pause !== undefined))
      return { kind: 'paused', reason: this.pause ?? 'this process does not lead' };
    if (history !== this.#history)
      return { kind: 'unclear', reason: 'the leader has not confirmed its Redis yet' };
    return { kind: 'may', untilMs: performance.now() + leadsForMs };
  }
}

/** Of a Lease that nobody competes for, only the annotations count. */
function withoutHolder({ lease, otherHolder }: SeenLease): SeenLease['lease'] {
  if (lease === undefined || otherHolder !== undefined) return lease;
  return { ...lease, record: { ...lease.record, holder: 'sutler_' } };
}

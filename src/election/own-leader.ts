import { performance } from 'node:perf_hooks';
import type { Claim, ObjectMeta } from '../kube/objects.ts';
import { type CallVerdict, holdOf, type LeaseView, type SeenLease } from './lease-view.ts';

/** Who leads, as far as this process knows. Its fields change. */
export interface LeadStatus {
  readonly isLeader: boolean;
  /** For how long this process leads without another renewal of the Lease, in ms. */
  readonly leadsForMs: number;
  readonly holder: string | undefined;
  /** How often the Lease has changed its holder; 0: not known. */
  readonly transitions: number;
  /** The driver's Lease, where this account may read it. */
  readonly seen: SeenLease;
}

/** Ingest and jobs are one process with a Redis of its own, so jobs asks ingest who leads. No other
 * process sees what this Redis holds: while another one leads, this one calls nothing. */
export class OwnLeader implements LeaseView {
  /** The only node that the process serves; undefined for all. */
  readonly node: string | undefined;
  /** A claim as ingest's watch shows it, if that has brought something lately: for the first run of
   * its job. It never goes through Redis. */
  freshClaim: (key: Pick<ObjectMeta, 'uid' | 'namespace' | 'name'>) => Claim | undefined = () =>
    undefined;
  #status: LeadStatus | undefined;
  #history: string | undefined;

  constructor(node?: string) {
    this.node = node;
  }

  follow(status: LeadStatus): void {
    this.#status = status;
  }

  /** The leader has begun with this history of Redis' data; undefined: it has to begin anew. */
  confirm(history: string | undefined): void {
    this.#history = history;
  }

  get pause(): string | undefined {
    if (this.#status?.isLeader === true) return holdOf(this.#status.seen);
    return `${this.#status?.holder ?? 'no process'} leads, and this process waits for the Lease`;
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

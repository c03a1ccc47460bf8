import { performance } from 'node:perf_hooks';
import type { Claim, ObjectMeta } from '../kube/objects.ts';
import { type CallVerdict, holdOf, type LeaseView, type SeenLease } from './lease-view.ts';

/** Who leads, as far as this process knows. Its fields change. */
export interface LeadStatus {
  readonly isLeader: boolean;
  /** How long this process leads without another renewal of the Lease, in ms. */
  readonly leadsForMs: number;
  readonly holder: string | undefined;
  /** How often the Lease has changed its holder; 0: not known. */
  readonly transitions: number;
  /** The driver's Lease, if this account may read it. */
  readonly seen: SeenLease;
}

/** Tells jobs who leads, if ingest and jobs are one process with its own Redis. No other process
 * sees this Redis, so while another process leads, this one calls nothing. */
export class OwnLeader implements LeaseView {
  /** The only node that the process serves; undefined for all. */
  readonly node: string | undefined;
  /** The watch's copy of a claim, if the watch has sent something lately: for the first run of the
   * claim's job. It never goes through Redis. */
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

  /** Notes the history of Redis' data with which the leader has begun; undefined: it has to begin
   * again. */
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

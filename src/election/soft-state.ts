/** Who holds the Lease, as far as its elector knows. Its fields change. */
export interface LeaseStatus {
  readonly isLeader: boolean;
  readonly holder: string | undefined;
  /** How often the Lease has changed its holder; 0: not known. */
  readonly transitions: number;
}

/** Soft state: ingest and jobs are one process with a Redis of its own, whose data ends with it
 * (record rule 10). What they then share is who leads: jobs opens no record while this process does
 * not, since no other process can see what its Redis holds.
 *
 * A process leads one term. When another one has led after it, its Redis is behind: it ends, as
 * external-provisioner does (csi-lib-utils leaderelection/leader_election.go), and begins anew. */
export class SoftState {
  readonly node: string | undefined;
  readonly #end: (reason: string) => void;
  #lease: LeaseStatus | undefined;
  /** The Lease when this process began to lead. */
  #term: Pick<LeaseStatus, 'holder' | 'transitions'> | undefined;
  #hasEnded = false;

  /** @param end  ends the process
   * @param node  the only node that the process serves; undefined for all */
  constructor(end: (reason: string) => void, node?: string) {
    this.#end = end;
    this.node = node;
  }

  /** Begins to follow the Lease that ingest competes for. */
  follow(lease: LeaseStatus): void {
    this.#lease = lease;
  }

  /** Why jobs may open no record: the process that leads; undefined while this one does. */
  get otherHolder(): string | undefined {
    const { isLeader, holder = 'no process' } = this.#lease ?? {};
    return isLeader === true && !this.#hasEnded ? undefined : holder;
  }

  /** To be called when this process begins to lead, and every second.
   * @returns false where the process ends because another one has led since this one did */
  check(): boolean {
    if (this.#lease === undefined) return true;
    const { isLeader, transitions, holder } = this.#lease;
    if (isLeader) this.#term ??= { holder, transitions };
    if (this.#term === undefined) return true;
    // A Lease that was deleted and created again counts from 0.
    const isSame = transitions === this.#term.transitions;
    if (isSame && (holder === undefined || holder === this.#term.holder)) return true;
    this.#hasEnded = true;
    this.#end(`${holder ?? 'another process'} has taken the Lease: beginning anew`);
    return false;
  }
}

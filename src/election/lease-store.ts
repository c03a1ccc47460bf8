import type { LeaseRecord } from './lease.ts';

/** A Lease as stored: the record, and the version that an update must match. */
export interface StoredLease {
  readonly record: LeaseRecord;
  /** Opaque; another value means that somebody wrote in between. */
  readonly version: string;
}

/** Where the Lease is kept. Every method may reject when the store can't be reached. */
export interface LeaseStore {
  /** undefined: there is none. */
  get(signal: AbortSignal): Promise<StoredLease | undefined>;
  /** undefined: there is one already. */
  create(record: LeaseRecord, signal: AbortSignal): Promise<StoredLease | undefined>;
  /** Replaces the version `over`.
   * @returns undefined: the Lease has another version by now, or is gone */
  update(
    record: LeaseRecord,
    over: StoredLease,
    signal: AbortSignal,
  ): Promise<StoredLease | undefined>;
  /** Tells of changes as they happen, as far as it can: best effort, nothing depends on it but
   * speed. undefined: it was deleted.
   * @returns ends the watch */
  watch(onChange: (lease: StoredLease | undefined) => void): () => void;
}

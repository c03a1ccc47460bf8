import type { LeaseRecord } from './lease.ts';

/** A Lease as read from its store. */
export interface StoredLease {
  readonly record: LeaseRecord;
  /** Opaque. An update is refused when it has changed. */
  readonly version: string;
}

/** Stores one Lease. All calls reject when the store can't be reached. */
export interface LeaseStore {
  /** @returns undefined: there is no Lease */
  get(signal: AbortSignal): Promise<StoredLease | undefined>;
  /** @returns undefined: there is a Lease already */
  create(record: LeaseRecord, signal: AbortSignal): Promise<StoredLease | undefined>;
  /** Replaces the version `over`.
   * @returns undefined: the Lease has another version now, or was deleted */
  update(
    record: LeaseRecord,
    over: StoredLease,
    signal: AbortSignal,
  ): Promise<StoredLease | undefined>;
  /** Calls back with the Lease after each change, undefined when it was deleted. Best effort: only
   * the speed of a take-over depends on it.
   * @returns a function that ends the watch */
  watch(onChange: (lease: StoredLease | undefined) => void): () => void;
}

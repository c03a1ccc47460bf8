import type { Claim, Volume } from '../kube/objects.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Run } from '../queue/run.ts';
import { ownershipMs } from '../records/flags.ts';
import type { Dependencies } from './dependencies.ts';

/** The part of a run that owns a volume record. */
export interface Attempt {
  /** Key of the record. */
  readonly id: string;
  /** Unique to this run. */
  readonly owner: string;
  readonly job: JobKey;
  /** The epoch of Redis' data before this run read its object (record rule 6). */
  readonly dataEpoch: string;
  /** The claim had our finalizer when this run read it (record rule 10). */
  readonly wasBegun?: boolean;
  /** Unix ms after which this run may send no call, because the call might outlast the ownership
   * (record rule 3). */
  readonly notAfterMs: number;
}

/** What the steps of a run need of it. */
export type RunHandle = Omit<Run, 'infeasibleBackoffMs'>;

/** An attempt at the volume of a claim. */
export interface ClaimAttempt {
  readonly attempt: Attempt;
  /** Absent when the claim is gone. */
  readonly claim: Claim | undefined;
  readonly run: RunHandle;
}

/** A volume and the run that works on it. */
export interface VolumeRun {
  readonly volume: Volume;
  readonly run: RunHandle;
}

/** How old a read of the PV may be when a DeleteVolume is sent (invariant 7). */
export const MAX_READ_AGE_MS = 2_000;

/** Starts an attempt, before its record is opened: so its time ends before its ownership does. It
 * also ends an ownership after the object was read: so what a record refused in between, it has
 * not forgotten yet.
 * @param readMs  when the run began to read its object */
export function startAttempt(
  { clock, driver: { timeoutMs }, redis, settings: { writeAllowanceMs } }: Dependencies,
  attempt: Pick<Attempt, 'id' | 'job' | 'dataEpoch' | 'wasBegun'>,
  readMs: number,
): Attempt {
  const notAfterMs = Math.min(
    clock.nowMs() + writeAllowanceMs,
    readMs + ownershipMs({ timeoutMs, writeAllowanceMs }),
  );
  return { ...attempt, owner: redis.newOwner(), notAfterMs };
}

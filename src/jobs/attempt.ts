import type { JobKey } from '../queue/contract.ts';

/** One run's hold on a volume record. */
export interface Attempt {
  /** Key of the record. */
  readonly id: string;
  /** Unique to this run. */
  readonly owner: string;
  readonly job: JobKey;
  /** The incarnation of Redis before this run read its object. */
  readonly incarnation: string;
  /** Unix ms past which this run may not send a call any more: so early that the call still ends
   * within the ownership (rule 3). */
  readonly notAfterMs: number;
  /** The gateway that its calls go through, as the open named it; '' = nobody has named one. */
  readonly gateway: string;
}

/** The clock of an attempt starts before its record is opened, so that it ends before the ownership
 * does. */
export function startAttempt(
  timing: { readonly nowMs: number; readonly writeAllowanceMs: number },
  attempt: Omit<Attempt, 'notAfterMs' | 'gateway'>,
): Attempt {
  return { ...attempt, notAfterMs: timing.nowMs + timing.writeAllowanceMs, gateway: '' };
}

/** The attempt, once its record is open and has said which gateway is the active one. */
export function withGateway(attempt: Attempt, gateway: string | undefined): Attempt {
  return { ...attempt, gateway: gateway ?? '' };
}

/** What the attempt tells a record when it opens it. */
export function openingOf({
  owner,
  job,
  incarnation,
}: Attempt): Pick<Attempt, 'owner' | 'job' | 'incarnation'> {
  return { owner, job, incarnation };
}

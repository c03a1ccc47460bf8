/** What an error of CreateVolume means for the record (design invariant 6). */
export type CreateFailure =
  /** Nothing was sent. `busy`: the gateway has a call for this volume under way. */
  | { readonly kind: 'not-forwarded'; readonly busy: boolean }
  /** The driver itself refused; final where the record is unambiguous. `infeasible`: no use to ask
   * again soon. */
  | { readonly kind: 'refused'; readonly infeasible: boolean }
  /** A volume may exist or come to exist. `running`: the driver is probably at it still. */
  | { readonly kind: 'ambiguous'; readonly running: boolean };

/** The slice of a CSI error that the rule reads. */
export interface CallFailure {
  /** gRPC code name, Go spelling. */
  readonly codeName: string;
  readonly driverSaid: boolean;
  readonly notForwarded: boolean;
}

const RUNNING = new Set(['Canceled', 'DeadlineExceeded', 'Aborted']);
/** Whether the driver is probably still at it after a call that ended so. */
export function isStillRunning(codeName: string): boolean {
  return RUNNING.has(codeName);
}

/** Codes after which a volume may exist although the driver said them: the call goes on, or the
 * name is taken by a volume of other shape. */
const NEVER_FINAL = new Set([...RUNNING, 'Unavailable', 'AlreadyExists']);

/** Sorts an error of CreateVolume.
 * @param earlier whether an earlier call may have made a volume that this answer says nothing
 *   about: drivers look for the source before they look for the name */
export function judgeCreateFailure(
  failure: CallFailure,
  earlier: { readonly mayHideVolume: boolean },
): CreateFailure {
  if (failure.notForwarded) return { kind: 'not-forwarded', busy: failure.codeName === 'Aborted' };
  if (failure.codeName === 'NotFound' && earlier.mayHideVolume)
    return { kind: 'ambiguous', running: false };
  if (failure.driverSaid && !NEVER_FINAL.has(failure.codeName))
    return { kind: 'refused', infeasible: failure.codeName === 'InvalidArgument' };
  return { kind: 'ambiguous', running: RUNNING.has(failure.codeName) };
}

import type { CsiError } from '../csi/status.ts';

/** What an error of CreateVolume means for the volume record (invariant 6). */
export type CreateFailure =
  /** Nothing was sent. `busy`: the gateway has another call for this volume under way. */
  | { readonly kind: 'not-forwarded'; readonly busy: boolean }
  /** The driver itself refused; final if the record is unambiguous. `infeasible`: the same request
   * can't succeed later. */
  | { readonly kind: 'refused'; readonly infeasible: boolean }
  /** A volume may exist or may still be created. `running`: the driver is probably at work. */
  | { readonly kind: 'ambiguous'; readonly running: boolean };

const RUNNING = new Set(['Canceled', 'DeadlineExceeded', 'Aborted']);

/** Whether the driver is probably still at work after a call that ended with this code. */
export function isStillRunning(codeName: string): boolean {
  return RUNNING.has(codeName);
}

/** Codes after which a volume may exist even if the driver itself sent them: the call goes on, or a
 * volume of another shape has the name. */
const NEVER_FINAL = new Set([...RUNNING, 'Unavailable', 'AlreadyExists']);

/** Classifies an error of CreateVolume. Upstream: external-provisioner
 * pkg/controller/controller.go checkError.
 * @param options.isNotFoundAmbiguous a content source was asked for, and an earlier call may have
 *   created the volume: NotFound may then be about the source, which drivers look up first */
export function judgeCreateFailure(
  error: Pick<CsiError, 'codeName' | 'driverSaid' | 'notForwarded'>,
  { isNotFoundAmbiguous }: { readonly isNotFoundAmbiguous: boolean },
): CreateFailure {
  const { codeName, driverSaid } = error;
  if (error.notForwarded) return { kind: 'not-forwarded', busy: codeName === 'Aborted' };
  const isFinal =
    driverSaid && !NEVER_FINAL.has(codeName) && !(codeName === 'NotFound' && isNotFoundAmbiguous);
  return isFinal
    ? { kind: 'refused', infeasible: codeName === 'InvalidArgument' }
    : { kind: 'ambiguous', running: isStillRunning(codeName) };
}

import { type CsiError, isFinal, isStillRunning } from '../../csi/status.ts';
import { CREATION_TIMEOUT } from '../../kube/keys.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { readClassSettings } from '../../volumes/class-settings.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import type { Dependencies } from '../dependencies.ts';
import {
  describeFailedCall,
  recordClaimEvent,
  reportFailedForNow,
  reportProvisioningFailed,
} from '../outcomes.ts';
import type { Creation } from './create-volume.ts';

/** What an error of CreateVolume says of the volume (invariant 5). */
type CreateFailure =
  | { readonly kind: 'not-forwarded' }
  /** The driver itself refused; final unless an earlier call may still be at work. `infeasible`:
   * the same request can't succeed later. */
  | { readonly kind: 'refused'; readonly infeasible: boolean }
  /** A volume may exist or may still be created. `running`: the driver is probably at work. */
  | { readonly kind: 'unknown'; readonly running: boolean };

/** Classifies an error of CreateVolume. Upstream: external-provisioner
 * pkg/controller/controller.go checkError.
 * @param options.isNotFoundUnknown a content source was asked for, and an earlier call may have
 *   created the volume: NotFound may then be about the source, which drivers look up first */
export function judgeCreateFailure(
  error: Pick<CsiError, 'codeName' | 'driverSaid' | 'notForwarded'>,
  { isNotFoundUnknown }: { readonly isNotFoundUnknown: boolean },
): CreateFailure {
  const { codeName } = error;
  if (error.notForwarded) return { kind: 'not-forwarded' };
  return isFinal(error) && !(codeName === 'NotFound' && isNotFoundUnknown)
    ? { kind: 'refused', infeasible: codeName === 'InvalidArgument' }
    : { kind: 'unknown', running: isStillRunning(codeName) };
}

/** How long the driver may fill a volume from a content source, unless the class says. Of other
 * volumes each such call is a failure, as in upstream. */
const FILL_MS = 3_600_000;

/** Since when the driver is at work, and until when that is no failure, by the class.
 * @returns undefined if it is one */
function usualTime(
  { clock, cluster }: Dependencies,
  { claim, planned, run }: Creation,
): { readonly since: string; readonly until: string } | undefined {
  const cls = claim && cluster.classOf(classNameOf(claim));
  const { creationTimeoutMs } = readClassSettings(cls);
  const sinceMs = run.queuedMs;
  const fallbackMs = planned.source === undefined ? 0 : FILL_MS;
  const untilMs = sinceMs + (creationTimeoutMs ?? fallbackMs);
  if (clock.nowMs() >= untilMs) return undefined;
  return { since: new Date(sinceMs).toISOString(), until: new Date(untilMs).toISOString() };
}

/** Whether the driver may take that long for this volume. */
export function isUsual(deps: Dependencies, creation: Creation): boolean {
  return usualTime(deps, creation) !== undefined;
}

/** The driver may still be at work: warns, unless it may take that long. */
export async function handleUnknownEnd(
  deps: Dependencies,
  creation: Creation,
  error: CsiError,
  isRunning: boolean,
): Promise<Outcome> {
  const { claim, run } = creation;
  const { events } = deps.cluster;
  const usual = isRunning ? usualTime(deps, creation) : undefined;
  if (usual === undefined) {
    const { reason, event } = await describeFailedCall(deps.driver, run, error);
    const report = isRunning ? reportFailedForNow : reportProvisioningFailed;
    report(events, claim, event);
    return isRunning ? { kind: 'running', reason } : { kind: 'retry', reason, mayBeAtWork: true };
  }
  // The same text for each call, so that it is one event, whose count is that of the calls.
  const message =
    `The driver is at work on the volume since ${usual.since}; it is asked again and again, ` +
    `which counts as failing from ${usual.until} on (${CREATION_TIMEOUT} of the class)`;
  // The first call has an event of its own.
  if (run.count > 1)
    recordClaimEvent(events, claim, { type: 'Normal', reason: 'Provisioning', message });
  return { kind: 'running', reason: `${message}: ${error.message}`, isUsual: true };
}

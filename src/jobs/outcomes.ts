import type { CsiError } from '../csi/status.ts';
import { retryCommand, slowStep, timeoutNote, unreachableEvent } from '../explain/causes.ts';
import { type EventInput, regardingClaim } from '../kube/events.ts';
import type { Claim, Volume } from '../kube/objects.ts';
import { keyOf } from '../kube/resources.ts';
import type { Outcome } from '../queue/outcome.ts';
import type { WaitCondition } from '../rules/rule.ts';
import { volumeFailedDelete } from '../volumes/deletion.ts';
import { supportsTopology } from '../volumes/driver-facts.ts';
import type { Dependencies, Events, JobRun } from './dependencies.ts';

/* Outcomes that creations and deletions share. */

/** Parks until one of the objects changes, or retries if no object is known to wait for. */
export function parkOrRetry(reason: string, until: readonly WaitCondition[]): Outcome {
  return until.length === 0 ? { kind: 'retry', reason } : { kind: 'parked', reason, until };
}

/** Ends a run whose call was not forwarded, after the run has taken its mark back. Aborted: the
 * gateway has another call for this volume under way, or the call came too late. Unavailable: no
 * call of any key gets through, because no gateway answers or the gateway has no driver; or the
 * gateway says that it was full for as long as this call could wait.
 * @param report  records the event if no call gets through */
export function notForwarded(
  { codeName, isGatewayFull, message: reason }: CsiError,
  report: (event: string) => void,
): Outcome {
  if (codeName === 'Aborted') return { kind: 'running', reason };
  if (isGatewayFull) return { kind: 'later', reason, isGatewayFull };
  if (codeName !== 'Unavailable') return { kind: 'later', reason };
  report(unreachableEvent(reason));
  return { kind: 'later', reason, isDriverDown: true };
}

/** Describes a failed call, for the outcome's reason and for the event. */
export async function describeFailedCall(
  { timeoutMs, run }: JobRun,
  { codeName, driverSaid, message }: Pick<CsiError, 'codeName' | 'driverSaid' | 'message'>,
): Promise<{ readonly reason: string; readonly event: string }> {
  if (codeName !== 'DeadlineExceeded' || driverSaid) return { reason: message, event: message };
  const reason = message + timeoutNote(timeoutMs);
  const last = await run.lastStatus();
  const step = slowStep(reason, last?.reason === reason ? last.alike + 1 : 1);
  return { reason, event: step === undefined ? message : `${message}; ${step}` };
}

/** Ends a run that needs the nodes before the watch has listed them; undefined after that, and for
 * a driver without topology. */
export function whyNodesAreUnknown({
  facts,
  options,
  topology,
}: Dependencies): Outcome | undefined {
  const isMissing = supportsTopology(facts(), options.gates) && topology() === undefined;
  return isMissing
    ? { kind: 'later', reason: 'the nodes of the cluster are not listed yet' }
    : undefined;
}

/* Events on claims and volumes. Each failed run warns, as in upstream. The warning renews the count
 * and time of the same earlier event, so that it does not expire while the fault lasts. */

/** The claim of a run, which may be gone, and where its events go. */
interface ClaimEvents {
  readonly events: Events;
  readonly claim: Claim | undefined;
}

/** Records an event on a claim, unless the claim is gone. */
export function recordClaimEvent(
  { events, claim }: ClaimEvents,
  event: Omit<EventInput, 'regarding'>,
): void {
  if (claim === undefined) return;
  events.record({ ...event, regarding: regardingClaim(claim.metadata) });
}

/** As reportProvisioningFailed, without a command: the next run comes soon. */
export function reportFailedForNow(of: ClaimEvents, message: string): void {
  recordClaimEvent(of, { type: 'Warning', reason: 'ProvisioningFailed', message });
}

/** Warns on the claim that this run ended without a volume, and names the command that retries. */
export function reportProvisioningFailed(of: ClaimEvents, message: string): void {
  if (of.claim === undefined) return;
  const nextStep = retryStep(keyOf(of.claim.metadata));
  recordClaimEvent(of, { type: 'Warning', reason: 'ProvisioningFailed', message, nextStep });
}

/** Warns on the volume that it could not be deleted. */
export function reportDeletionFailed(events: Events, volume: Volume, message: string): void {
  const nextStep = retryStep(volume.metadata.name);
  events.record({ ...volumeFailedDelete(volume, message), nextStep });
}

function retryStep(object: string): string {
  return `; when that is mended: ${retryCommand(object)}`;
}

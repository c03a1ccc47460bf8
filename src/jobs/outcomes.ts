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

/** How a run ends whose call was not forwarded; its mark is taken back by then. The gateway answers
 * Aborted while it has another call for this volume under way, and after a time at which the call
 * was too late. Unavailable means that no call of any key gets through (no gateway answers, or the
 * gateway has no driver), unless the gateway says that it only was full for as long as this call
 * could wait.
 * @param report  records the event of a run that found that no call gets through */
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

/** What a run whose call failed says: as reason of its outcome, and in its event. */
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

/** The outcome of a run that needs the nodes before they are listed; undefined once they are, and
 * for a driver without topology. */
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

/* Kubernetes events on claims and volumes. Each run that fails warns, as upstream does: the event
 * of the run before gets the new count and time, so that it does not expire while the fault
 * lasts. */

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

/** Warns on the claim that this run ended without a volume; another one comes by itself. */
export function reportFailedForNow(of: ClaimEvents, message: string): void {
  recordClaimEvent(of, { type: 'Warning', reason: 'ProvisioningFailed', message });
}

/** Warns on the claim that this run ended without a volume. */
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

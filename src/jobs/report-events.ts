import type { EventInput } from '../kube/events.ts';
import type { Claim, Volume } from '../kube/objects.ts';
import type { Run } from '../queue/consumer.ts';
import { shownReason } from '../queue/outcome.ts';
import { volumeFailedDelete } from '../volumes/deletion-event.ts';
import type { ProcessorPorts } from './ports.ts';

/* Kubernetes events on claims and volumes. A warning is left out when the run before ended for the
 * same reason, so that retries do not repeat it. */

/** A claim and the run that works on it. */
export interface ClaimRun {
  /** Absent when the claim is gone. */
  readonly claim: Claim | undefined;
  readonly run: Pick<Run, 'signal' | 'lastReason'>;
}

/** A volume and the run that works on it. */
export interface VolumeRun {
  readonly volume: Volume;
  readonly run: Pick<Run, 'signal' | 'lastReason'>;
}

/** Records an event on a claim, unless the claim is gone. */
export function recordClaimEvent(
  ports: Pick<ProcessorPorts, 'events'>,
  claim: Claim | undefined,
  event: Omit<EventInput, 'regarding'>,
): void {
  if (claim === undefined) return;
  const { namespace = '', name, uid, resourceVersion } = claim.metadata;
  const object = { kind: 'PersistentVolumeClaim', apiVersion: 'v1', namespace, name };
  ports.events.record({ ...event, regarding: { ...object, uid, resourceVersion } });
}

/** Warns on the claim that this run ended without a volume.
 * @param reason of the run's outcome, if the message is not the same */
export async function reportProvisioningFailed(
  ports: Pick<ProcessorPorts, 'events'>,
  { claim, run }: ClaimRun,
  message: string,
  reason = message,
): Promise<void> {
  if (claim === undefined || (await isRepeated(run, reason))) return;
  recordClaimEvent(ports, claim, { type: 'Warning', reason: 'ProvisioningFailed', message });
}

/** Warns on the volume that it could not be deleted. */
export async function reportDeletionFailed(
  ports: Pick<ProcessorPorts, 'events'>,
  { volume, run }: VolumeRun,
  message: string,
): Promise<void> {
  if (!(await isRepeated(run, message))) ports.events.record(volumeFailedDelete(volume, message));
}

async function isRepeated(run: Pick<Run, 'lastReason'>, reason: string): Promise<boolean> {
  return (await run.lastReason()) === shownReason(reason);
}

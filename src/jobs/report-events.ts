import type { EventInput } from '../kube/event-correlation.ts';
import type { Claim, Volume } from '../kube/objects.ts';
import type { Run } from '../queue/run.ts';
import { volumeFailedDelete } from '../volumes/deletion.ts';
import type { ProcessorPorts } from './ports.ts';

/* Kubernetes events on claims and volumes. Each run that fails warns, as upstream does: the event
 * of the run before gets the new count and time, so that it does not expire while the fault
 * lasts. */

/** A claim and the run that works on it. */
export interface ClaimRun {
  /** Absent when the claim is gone. */
  readonly claim: Claim | undefined;
  readonly run: Pick<Run, 'signal' | 'reachedDriver' | 'lastReason'>;
}

/** A volume and the run that works on it. */
export interface VolumeRun {
  readonly volume: Volume;
  readonly run: Pick<Run, 'signal' | 'reachedDriver' | 'lastReason'>;
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

/** Warns on the claim that this run ended without a volume. */
export function reportProvisioningFailed(
  ports: Pick<ProcessorPorts, 'events'>,
  { claim }: Pick<ClaimRun, 'claim'>,
  message: string,
): void {
  recordClaimEvent(ports, claim, { type: 'Warning', reason: 'ProvisioningFailed', message });
}

/** Warns on the volume that it could not be deleted. */
export function reportDeletionFailed(
  ports: Pick<ProcessorPorts, 'events'>,
  { volume }: Pick<VolumeRun, 'volume'>,
  message: string,
): void {
  ports.events.record(volumeFailedDelete(volume, message));
}

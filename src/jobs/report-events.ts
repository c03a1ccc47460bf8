import type { EventInput } from '../kube/event-correlation.ts';
import type { Claim, Volume } from '../kube/objects.ts';
import { volumeFailedDelete } from '../volumes/deletion.ts';
import type { Events } from './dependencies.ts';

/* Kubernetes events on claims and volumes. Each run that fails warns, as upstream does: the event
 * of the run before gets the new count and time, so that it does not expire while the fault
 * lasts. */

/** Records an event on a claim, unless the claim is gone. */
export function recordClaimEvent(
  events: Events,
  claim: Claim | undefined,
  event: Omit<EventInput, 'regarding'>,
): void {
  if (claim === undefined) return;
  const { namespace = '', name, uid, resourceVersion } = claim.metadata;
  const object = { kind: 'PersistentVolumeClaim', apiVersion: 'v1', namespace, name };
  events.record({ ...event, regarding: { ...object, uid, resourceVersion } });
}

/** Warns on the claim that this run ended without a volume. */
export function reportProvisioningFailed(
  events: Events,
  claim: Claim | undefined,
  message: string,
): void {
  recordClaimEvent(events, claim, { type: 'Warning', reason: 'ProvisioningFailed', message });
}

/** Warns on the volume that it could not be deleted. */
export function reportDeletionFailed(events: Events, volume: Volume, message: string): void {
  events.record(volumeFailedDelete(volume, message));
}

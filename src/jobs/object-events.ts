import type { EventInput } from '../kube/events.ts';
import type { Claim, Volume } from '../kube/objects.ts';
import type { Run } from '../queue/consumer.ts';
import { shownReason } from '../queue/outcome.ts';
import { volumeFailedDelete } from '../volumes/deletion-event.ts';
import type { ProcessorPorts } from './ports.ts';

/** An event on a claim; none where the claim is gone, as nobody could read it. */
export function claimEvent(
  ports: Pick<ProcessorPorts, 'events'>,
  claim: Claim | undefined,
  event: Omit<EventInput, 'regarding'>,
): void {
  if (claim === undefined) return;
  const { name, namespace, uid, resourceVersion } = claim.metadata;
  ports.events.record({
    ...event,
    regarding: {
      kind: 'PersistentVolumeClaim',
      apiVersion: 'v1',
      ...(namespace === undefined ? {} : { namespace }),
      name,
      uid,
      resourceVersion,
    },
  });
}

/** A claim, and the run that is at it. */
export interface ClaimRun {
  /** Absent when the claim is gone. */
  readonly claim: Claim | undefined;
  readonly run: Pick<Run, 'lastReason'>;
}

/** The warning of a run that ends without a volume; none where the run before ended for the same
 * reason: that is no news.
 * @param reason of the outcome, where the message says more */
export async function provisioningFailed(
  ports: Pick<ProcessorPorts, 'events'>,
  { claim, run }: ClaimRun,
  message: string,
  reason = message,
): Promise<void> {
  if (claim === undefined || (await run.lastReason()) === shownReason(reason)) return;
  claimEvent(ports, claim, { type: 'Warning', reason: 'ProvisioningFailed', message });
}

/** A warning on a volume. */
export function volumeWarning(
  ports: Pick<ProcessorPorts, 'events'>,
  volume: Volume,
  message: string,
): void {
  ports.events.record(volumeFailedDelete(volume, message));
}

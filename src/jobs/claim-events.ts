import type { Claim, Volume } from '../kube/objects.ts';
import type { ProcessorPorts } from './ports.ts';

type Type = 'Normal' | 'Warning';

/** An event on a claim; none where the claim is gone, as nobody could read it. */
export function claimEvent(
  ports: Pick<ProcessorPorts, 'events'>,
  claim: Claim | undefined,
  event: { type: Type; reason: string; message: string },
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

/** A warning on a volume. */
export function volumeWarning(ports: Pick<ProcessorPorts, 'events'>, volume: Volume, message: string): void {
  const { name, uid, resourceVersion } = volume.metadata;
  ports.events.record({
    type: 'Warning',
    reason: 'VolumeFailedDelete',
    message,
    regarding: { kind: 'PersistentVolume', apiVersion: 'v1', name, uid, resourceVersion },
  });
}

import type { EventInput } from '../kube/events.ts';
import type { Volume } from '../kube/objects.ts';

/** The warning on a volume whose deletion failed. Upstream: sig-storage-lib-external-provisioner
 * controller/controller.go deleteVolumeOperation. */
export function volumeFailedDelete(
  { metadata: { name, uid, resourceVersion } }: Volume,
  message: string,
): EventInput {
  return {
    type: 'Warning',
    reason: 'VolumeFailedDelete',
    message,
    regarding: { kind: 'PersistentVolume', apiVersion: 'v1', name, uid, resourceVersion },
  };
}

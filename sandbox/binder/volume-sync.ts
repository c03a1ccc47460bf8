import { PROVISIONED_BY } from '#src/kube/keys.ts';
import { memberAt, textAt } from '../api/json-value.ts';
import { claims } from '../api/kinds/claims.ts';
import { VOLUME_FINALIZER, volumes } from '../api/kinds/volumes.ts';
import { keyOf, type KubeObject } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';

export type VolumePhase = 'Available' | 'Bound' | 'Released';

/** Sets a volume's phase by its claim, and removes its protection finalizer when it is deleted and
 * not Bound. */
export function syncVolume(operations: Operations, volume: KubeObject): void {
  const phase = phaseOf(operations, volume);
  const current = phase === undefined ? volume : setVolumePhase(operations, volume, phase);
  const { deletionTimestamp, finalizers = [], name } = current.metadata;
  if (deletionTimestamp === undefined || !finalizers.includes(VOLUME_FINALIZER)) return;
  if (textAt(current, 'status', 'phase') === 'Bound') return;
  operations.patch({ resource: volumes, name }, 'merge', {
    metadata: { finalizers: finalizers.filter((each) => each !== VOLUME_FINALIZER) },
  });
}

/** The phase that the volume should have; undefined if the sync of its claim decides that. */
function phaseOf(operations: Operations, volume: KubeObject): VolumePhase | undefined {
  const uid = textAt(volume, 'spec', 'claimRef', 'uid');
  // Without a claim, or reserved for a claim that does not exist yet.
  if (uid === '') return 'Available';
  const key = keyOf(
    textAt(volume, 'spec', 'claimRef', 'namespace'),
    textAt(volume, 'spec', 'claimRef', 'name'),
  );
  const claim = operations.store.collection(claims).objects.get(key)?.object;
  if (claim === undefined || claim.metadata.uid !== uid) return 'Released';
  const chosen = textAt(claim, 'spec', 'volumeName');
  if (chosen === '') return undefined;
  if (chosen === volume.metadata.name) return 'Bound';
  // A second volume that was provisioned for the claim.
  const policy = textAt(volume, 'spec', 'persistentVolumeReclaimPolicy');
  const isProvisioned = volume.metadata.annotations?.[PROVISIONED_BY] !== undefined;
  return isProvisioned && policy === 'Delete' ? 'Released' : undefined;
}

/** Sets a volume's phase.
 * @returns the volume after the write */
export function setVolumePhase(
  operations: Operations,
  volume: KubeObject,
  phase: VolumePhase,
): KubeObject {
  if (memberAt(volume, 'status', 'phase') === phase) return volume;
  return operations.patch(
    { resource: volumes, name: volume.metadata.name },
    'merge',
    { status: { phase, message: null, reason: null } },
    { subresource: 'status' },
  ).stored.object;
}

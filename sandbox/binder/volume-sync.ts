import { memberAt, textAt } from '../api/json-value.ts';
import { claims } from '../api/kinds/claims.ts';
import { VOLUME_FINALIZER, volumes } from '../api/kinds/volumes.ts';
import { keyOf, type KubeObject } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';
import { BOUND_BY_CONTROLLER, PROVISIONED_BY } from './annotations.ts';

export type VolumePhase = 'Available' | 'Bound' | 'Released';

/** Syncs one volume: sets its phase by its claim, and removes its protection finalizer when it is
 * deleted and not bound. */
export class VolumeSync {
  readonly #operations: Operations;

  constructor(operations: Operations) {
    this.#operations = operations;
  }

  sync(volume: KubeObject): void {
    const phase = this.#phase(volume);
    const current = phase === undefined ? volume : setVolumePhase(this.#operations, volume, phase);
    this.#unprotect(current);
  }

  /** The phase that the volume should have; undefined where the sync of its claim decides that. */
  #phase(volume: KubeObject): VolumePhase | undefined {
    const uid = textAt(volume, 'spec', 'claimRef', 'uid');
    // Without a claim, or reserved for a claim that does not exist yet.
    if (uid === '') return 'Available';
    const key = keyOf(
      textAt(volume, 'spec', 'claimRef', 'namespace'),
      textAt(volume, 'spec', 'claimRef', 'name'),
    );
    const claim = this.#operations.store.collection(claims).objects.get(key)?.object;
    if (claim === undefined || claim.metadata.uid !== uid) return 'Released';
    const chosen = textAt(claim, 'spec', 'volumeName');
    if (chosen === '') return undefined;
    if (chosen === volume.metadata.name) return 'Bound';
    return this.#phaseWhenNotChosen(volume);
  }

  /** The claim is bound to another volume. A volume that was provisioned for the claim is released;
   * one that the binder chose becomes free again. */
  #phaseWhenNotChosen(volume: KubeObject): VolumePhase | undefined {
    const { annotations } = volume.metadata;
    const policy = textAt(volume, 'spec', 'persistentVolumeReclaimPolicy');
    if (annotations?.[PROVISIONED_BY] !== undefined && policy === 'Delete') return 'Released';
    if (annotations?.[BOUND_BY_CONTROLLER] === undefined) return undefined;
    this.#operations.patch({ resource: volumes, name: volume.metadata.name }, 'merge', {
      metadata: { annotations: { [BOUND_BY_CONTROLLER]: null } },
      spec: { claimRef: null },
    });
    return undefined;
  }

  #unprotect(volume: KubeObject): void {
    const { deletionTimestamp, finalizers = [], name } = volume.metadata;
    if (
      deletionTimestamp === undefined ||
      !finalizers.includes(VOLUME_FINALIZER) ||
      textAt(volume, 'status', 'phase') === 'Bound'
    )
      return;
    const rest = finalizers.filter((each) => each !== VOLUME_FINALIZER);
    this.#operations.patch({ resource: volumes, name }, 'merge', {
      metadata: { finalizers: rest },
    });
  }
}

/** Sets a volume's phase.
 * @returns the volume after the write */
export function setVolumePhase(
  operations: Operations,
  volume: KubeObject,
  phase: VolumePhase,
): KubeObject {
  if (memberAt(volume, 'status', 'phase') === phase) return volume;
  const place = { resource: volumes, name: volume.metadata.name };
  return operations.patch(
    place,
    'merge',
    { status: { phase, message: null, reason: null } },
    { subresource: 'status' },
  ).stored.object;
}

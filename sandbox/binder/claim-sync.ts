import {
  equalJson,
  memberAt,
  objectAt,
  textAt,
  type Json,
  type JsonObject,
} from '../api/json-value.ts';
import { CLAIM_FINALIZER, claims, classOf } from '../api/kinds/claims.ts';
import { pods } from '../api/kinds/core.ts';
import { classes } from '../api/kinds/storage.ts';
import { volumes } from '../api/kinds/volumes.ts';
import type { KubeObject } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';
import type { ObjectEvents } from '../control/object-events.ts';
import {
  BIND_COMPLETED,
  BOUND_BY_CONTROLLER,
  PROVISIONER,
  PROVISIONER_BETA,
  SELECTED_NODE,
} from './annotations.ts';
import { bestMatch, mismatch, refersTo } from './match.ts';
import type { VolumeIndex } from './volume-index.ts';
import { setVolumePhase } from './volume-sync.ts';

/** Syncs one claim: binds it to a volume, or requests one from the provisioner of its class. */
export class ClaimSync {
  readonly #operations: Operations;
  readonly #index: VolumeIndex;
  readonly #events: ObjectEvents;

  constructor(operations: Operations, index: VolumeIndex, claimEvents: ObjectEvents) {
    this.#operations = operations;
    this.#index = index;
    this.#events = claimEvents;
  }

  sync(claim: KubeObject): void {
    if (this.#unprotect(claim)) return;
    if (claim.metadata.annotations?.[BIND_COMPLETED] !== undefined) this.#syncBound(claim);
    else if (textAt(claim, 'spec', 'volumeName') === '') this.#findVolume(claim);
    else this.#bindNamed(claim, textAt(claim, 'spec', 'volumeName'));
  }

  /** Removes the protection finalizer of a deleted claim that no pod uses.
   * @returns whether the claim is gone */
  #unprotect(claim: KubeObject): boolean {
    const { deletionTimestamp, finalizers = [], name, namespace } = claim.metadata;
    if (
      deletionTimestamp === undefined ||
      !finalizers.includes(CLAIM_FINALIZER) ||
      this.#isUsed(claim)
    )
      return false;
    const rest = finalizers.filter((each) => each !== CLAIM_FINALIZER);
    this.#operations.patch({ resource: claims, namespace, name }, 'merge', {
      metadata: { finalizers: rest },
    });
    return rest.length === 0;
  }

  #isUsed(claim: KubeObject): boolean {
    return this.#podsOf(claim).length > 0;
  }

  /** The pods that use a claim and have not ended. */
  #podsOf(claim: KubeObject): readonly KubeObject[] {
    const key = `${claim.metadata.namespace ?? ''}/${claim.metadata.name}`;
    return [...this.#operations.store.collection(pods).objects.values()]
      .map(({ object }) => object)
      .filter((pod) => {
        const phase = textAt(pod, 'status', 'phase');
        return phase !== 'Succeeded' && phase !== 'Failed' && claimsOfPod(pod).includes(key);
      });
  }

  /** Says what a claim waits for whose class waits for a consumer. */
  #recordWaiting(claim: KubeObject): void {
    const names = this.#podsOf(claim)
      .filter((pod) => textAt(pod, 'spec', 'nodeName') === '')
      .map((pod) => pod.metadata.name);
    if (names.length === 0) {
      const message = 'waiting for first consumer to be created before binding';
      return this.#events.record(claim, 'Normal', 'WaitForFirstConsumer', message);
    }
    const waiting = `waiting for pod${names.length === 1 ? '' : 's'} ${names.join(',')}`;
    this.#events.record(claim, 'Normal', 'WaitForPodScheduled', `${waiting} to be scheduled`);
  }

  /** A claim that was bound before: completes the binding, or marks the claim as lost if its volume
   * is gone or belongs to another claim. */
  #syncBound(claim: KubeObject): void {
    const volume = this.#volume(textAt(claim, 'spec', 'volumeName'));
    if (volume === undefined) {
      this.#markLost(
        claim,
        'ClaimLost',
        'Bound claim has lost its PersistentVolume. Data on this volume is lost!',
      );
    } else if (memberAt(volume, 'spec', 'claimRef') === undefined || refersTo(volume, claim)) {
      this.#bind(volume, claim);
    } else {
      this.#markLost(
        claim,
        'ClaimMisbound',
        'Two claims are bound to the same volume, this one is bound incorrectly',
      );
    }
  }

  #markLost(claim: KubeObject, reason: string, message: string): void {
    if (textAt(claim, 'status', 'phase') === 'Lost') return;
    this.#events.record(claim, 'Warning', reason, message);
    this.#patchStatus(claim, { phase: 'Lost', accessModes: null, capacity: null });
  }

  /** A claim that names a volume is bound to that one only. */
  #bindNamed(claim: KubeObject, name: string): void {
    const volume = this.#volume(name);
    if (volume === undefined) return;
    if (refersTo(volume, claim)) return this.#bind(volume, claim);
    if (memberAt(volume, 'spec', 'claimRef') !== undefined) {
      return this.#events.record(
        claim,
        'Warning',
        'FailedBinding',
        `volume "${name}" already bound to a different claim.`,
      );
    }
    const why =
      (classOf(volume) ?? '') === (classOf(claim) ?? '')
        ? mismatch(volume, claim)
        : 'storageClassName does not match';
    if (why === undefined) this.#bind(volume, claim);
    else
      this.#events.record(
        claim,
        'Warning',
        'VolumeMismatch',
        `Cannot bind to requested volume "${name}": ${why}`,
      );
  }

  #findVolume(claim: KubeObject): void {
    const { metadata } = claim;
    const own = [...this.#index.claimedBy(`${metadata.namespace ?? ''}/${metadata.name}`)]
      .map((name) => this.#volume(name))
      .find(
        (volume) =>
          volume !== undefined && refersTo(volume, claim) && mismatch(volume, claim) === undefined,
      );
    if (own !== undefined) return this.#bind(own, claim);
    const className = classOf(claim) ?? '';
    const storageClass = this.#operations.store.collection(classes).objects.get(className)?.object;
    const waits = storageClass?.['volumeBindingMode'] === 'WaitForFirstConsumer';
    if (waits && metadata.annotations?.[SELECTED_NODE] === undefined) {
      return this.#recordWaiting(claim);
    }
    // Once a node is chosen, the scheduler matches free volumes.
    const free = waits ? undefined : bestMatch(claim, this.#freeVolumes());
    if (free !== undefined) return this.#bind(free, claim);
    if (className === '') {
      const message = 'no persistent volumes available for this claim and no storage class is set';
      return this.#events.record(claim, 'Normal', 'FailedBinding', message);
    }
    this.#requestVolume(claim, className, storageClass);
  }

  #requestVolume(claim: KubeObject, className: string, storageClass: KubeObject | undefined): void {
    if (storageClass === undefined) {
      return this.#events.record(
        claim,
        'Warning',
        'ProvisioningFailed',
        `storageclass.storage.k8s.io "${className}" not found`,
      );
    }
    const provisioner = textAt(storageClass, 'provisioner');
    if (provisioner.startsWith('kubernetes.io/')) {
      return this.#events.record(
        claim,
        'Warning',
        'ProvisioningFailed',
        `no volume plugin matched name: ${provisioner}`,
      );
    }
    const { annotations = {}, name, namespace } = claim.metadata;
    if (annotations[PROVISIONER] !== provisioner || annotations[PROVISIONER_BETA] !== provisioner) {
      this.#operations.patch({ resource: claims, namespace, name }, 'merge', {
        metadata: { annotations: { [PROVISIONER]: provisioner, [PROVISIONER_BETA]: provisioner } },
      });
    }
    this.#events.record(
      claim,
      'Normal',
      'ExternalProvisioning',
      `Waiting for a volume to be created either by the external provisioner '${provisioner}' ` +
        'or manually by the system administrator. If volume creation is delayed, please verify ' +
        'that the provisioner is running and correctly registered.',
    );
  }

  /** Writes the volume, its phase, the claim and its status, in the order of the real controller.
   * Each write is left out if it would change nothing. */
  #bind(volume: KubeObject, claim: KubeObject): void {
    const { name, namespace, uid } = claim.metadata;
    let current = volume;
    if (textAt(volume, 'spec', 'claimRef', 'uid') !== uid) {
      const isOurChoice = memberAt(volume, 'spec', 'claimRef') === undefined;
      const { resourceVersion } = claim.metadata;
      const claimRef = {
        kind: claim.kind,
        apiVersion: claim.apiVersion,
        namespace,
        name,
        uid,
        resourceVersion,
      };
      const patch: JsonObject = {
        spec: { claimRef },
        ...(isOurChoice ? { metadata: { annotations: { [BOUND_BY_CONTROLLER]: 'yes' } } } : {}),
      };
      current = this.#operations.patch(
        { resource: volumes, name: volume.metadata.name },
        'merge',
        patch,
      ).stored.object;
    }
    setVolumePhase(this.#operations, current, 'Bound');
    const isOurChoice = textAt(claim, 'spec', 'volumeName') === '';
    if (isOurChoice || claim.metadata.annotations?.[BIND_COMPLETED] === undefined) {
      this.#operations.patch({ resource: claims, namespace, name }, 'merge', {
        metadata: {
          annotations: {
            [BIND_COMPLETED]: 'yes',
            ...(isOurChoice ? { [BOUND_BY_CONTROLLER]: 'yes' } : {}),
          },
        },
        spec: { volumeName: volume.metadata.name },
      });
    }
    const capacity = objectAt(claim, 'status', 'capacity');
    const attributes = memberAt(volume, 'spec', 'volumeAttributesClassName');
    this.#patchStatus(claim, {
      phase: 'Bound',
      accessModes: memberAt(volume, 'spec', 'accessModes') ?? null,
      // The capacity of a bound claim changes by a resize only.
      ...(capacity['storage'] === undefined
        ? { capacity: memberAt(volume, 'spec', 'capacity') ?? null }
        : {}),
      ...(attributes === undefined ? {} : { currentVolumeAttributesClassName: attributes }),
    });
  }

  #patchStatus(claim: KubeObject, status: Record<string, Json>): void {
    const now = objectAt(claim, 'status');
    if (Object.entries(status).every(([name, value]) => equalJson(now[name] ?? null, value)))
      return;
    const { name, namespace } = claim.metadata;
    this.#operations.patch(
      { resource: claims, namespace, name },
      'merge',
      { status },
      { subresource: 'status' },
    );
  }

  #volume(name: string): KubeObject | undefined {
    return this.#operations.store.collection(volumes).objects.get(name)?.object;
  }

  *#freeVolumes(): Iterable<KubeObject> {
    for (const name of this.#index.free) {
      const volume = this.#volume(name);
      if (volume !== undefined) yield volume;
    }
  }
}

/** 'namespace/name' of the claims that a pod uses, including those of generic ephemeral volumes. */
export function claimsOfPod(pod: KubeObject): string[] {
  const list = memberAt(pod, 'spec', 'volumes');
  if (!Array.isArray(list)) return [];
  return list.flatMap((volume) => {
    const named = textAt(volume, 'persistentVolumeClaim', 'claimName');
    const name =
      memberAt(volume, 'ephemeral') === undefined
        ? named
        : `${pod.metadata.name}-${textAt(volume, 'name')}`;
    return name === '' ? [] : [`${pod.metadata.namespace ?? ''}/${name}`];
  });
}

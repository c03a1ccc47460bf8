import { BETA_STORAGE_PROVISIONER, SELECTED_NODE, STORAGE_PROVISIONER } from '#src/kube/keys.ts';
import {
  equalJson,
  memberAt,
  objectAt,
  textAt,
  textsAt,
  type Json,
  type JsonObject,
} from '../api/json-value.ts';
import { CLAIM_FINALIZER, claims, classOf } from '../api/kinds/claims.ts';
import { pods } from '../api/kinds/core.ts';
import { classes } from '../api/kinds/storage.ts';
import { volumes } from '../api/kinds/volumes.ts';
import type { KubeObject } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';
import { compareQuantities } from '../api/quantity.ts';
import type { ObjectEvents } from '../control/object-events.ts';
import type { VolumeIndex } from './volume-index.ts';
import { setVolumePhase } from './volume-sync.ts';

/** On a claim: its binding is complete. */
export const BIND_COMPLETED = 'pv.kubernetes.io/bind-completed';
/** On a claim or volume: the binder, not a user, wrote the reference. */
const BOUND_BY_CONTROLLER = 'pv.kubernetes.io/bound-by-controller';

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
    const { deletionTimestamp, finalizers = [] } = claim.metadata;
    const isProtected = finalizers.includes(CLAIM_FINALIZER);
    if (deletionTimestamp !== undefined && isProtected && !this.#isUsed(claim)) {
      const rest = finalizers.filter((each) => each !== CLAIM_FINALIZER);
      this.#patch(claim, { metadata: { finalizers: rest } });
      if (rest.length === 0) return;
    }
    if (textAt(claim, 'spec', 'volumeName') === '') this.#findVolume(claim);
    else this.#syncNamed(claim);
  }

  /** Binds a claim that names its volume. Marks the claim as lost if it was Bound and the volume is
   * gone or belongs to another claim. */
  #syncNamed(claim: KubeObject): void {
    const volume = this.#volume(textAt(claim, 'spec', 'volumeName'));
    const isOwn = volume !== undefined && isFor(volume, claim);
    const wasBound = claim.metadata.annotations?.[BIND_COMPLETED] !== undefined;
    if (isOwn && (wasBound || fits(volume, claim))) this.#bind(volume, claim);
    else if (wasBound && !isOwn) this.#markLost(claim);
  }

  /** Whether a pod that has not ended uses a claim. */
  #isUsed(claim: KubeObject): boolean {
    const key = `${claim.metadata.namespace ?? ''}/${claim.metadata.name}`;
    return [...this.#operations.store.collection(pods).objects.values()].some(({ object: pod }) => {
      const phase = textAt(pod, 'status', 'phase');
      return phase !== 'Succeeded' && phase !== 'Failed' && claimsOfPod(pod).includes(key);
    });
  }

  #markLost(claim: KubeObject): void {
    if (textAt(claim, 'status', 'phase') === 'Lost') return;
    const message = 'Bound claim has lost its PersistentVolume. Data on this volume is lost!';
    this.#events.record(claim, 'Warning', 'ClaimLost', message);
    this.#patchStatus(claim, { phase: 'Lost', accessModes: null, capacity: null });
  }

  #findVolume(claim: KubeObject): void {
    const { name, namespace = '', annotations } = claim.metadata;
    const own = this.#bestOf(this.#index.claimedBy(`${namespace}/${name}`), claim);
    if (own !== undefined) return this.#bind(own, claim);
    const className = classOf(claim) ?? '';
    const storageClass = this.#operations.store.collection(classes).objects.get(className)?.object;
    if (storageClass?.['volumeBindingMode'] === 'WaitForFirstConsumer') {
      if (annotations?.[SELECTED_NODE] !== undefined) this.#requestVolume(claim, storageClass);
      else {
        const message = 'waiting for first consumer to be created before binding';
        this.#events.record(claim, 'Normal', 'WaitForFirstConsumer', message);
      }
      return;
    }
    const free = this.#bestOf(this.#index.claimedBy(''), claim);
    if (free !== undefined) this.#bind(free, claim);
    else if (className === '') {
      const message = 'no persistent volumes available for this claim and no storage class is set';
      this.#events.record(claim, 'Normal', 'FailedBinding', message);
    } else if (storageClass === undefined) {
      const message = `storageclass.storage.k8s.io "${className}" not found`;
      this.#events.record(claim, 'Warning', 'ProvisioningFailed', message);
    } else this.#requestVolume(claim, storageClass);
  }

  /** The smallest of these volumes that fits the claim. */
  #bestOf(names: Iterable<string>, claim: KubeObject): KubeObject | undefined {
    let best: KubeObject | undefined;
    for (const name of names) {
      const volume = this.#volume(name);
      if (volume === undefined || !isFor(volume, claim) || !fits(volume, claim)) continue;
      if (best === undefined || compareQuantities(sizeOf(volume), sizeOf(best)) < 0) best = volume;
    }
    return best;
  }

  #requestVolume(claim: KubeObject, storageClass: KubeObject): void {
    const provisioner = textAt(storageClass, 'provisioner');
    const wanted = { [STORAGE_PROVISIONER]: provisioner, [BETA_STORAGE_PROVISIONER]: provisioner };
    const { annotations = {} } = claim.metadata;
    if (!equalJson({ ...annotations, ...wanted }, annotations))
      this.#patch(claim, { metadata: { annotations: wanted } });
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
   * Skips each write that would change nothing. */
  #bind(volume: KubeObject, claim: KubeObject): void {
    const { kind, apiVersion, metadata } = claim;
    const { name, namespace, uid, resourceVersion } = metadata;
    let current = volume;
    if (textAt(volume, 'spec', 'claimRef', 'uid') !== uid) {
      const isOurChoice = memberAt(volume, 'spec', 'claimRef') === undefined;
      current = this.#operations.patch({ resource: volumes, name: volume.metadata.name }, 'merge', {
        spec: { claimRef: { kind, apiVersion, namespace, name, uid, resourceVersion } },
        ...(isOurChoice ? { metadata: { annotations: { [BOUND_BY_CONTROLLER]: 'yes' } } } : {}),
      }).stored.object;
    }
    setVolumePhase(this.#operations, current, 'Bound');
    const isOurChoice = textAt(claim, 'spec', 'volumeName') === '';
    if (isOurChoice || metadata.annotations?.[BIND_COMPLETED] === undefined) {
      const chosen = isOurChoice ? { [BOUND_BY_CONTROLLER]: 'yes' } : {};
      this.#patch(claim, {
        metadata: { annotations: { [BIND_COMPLETED]: 'yes', ...chosen } },
        spec: { volumeName: volume.metadata.name },
      });
    }
    const attributes = memberAt(volume, 'spec', 'volumeAttributesClassName');
    this.#patchStatus(claim, {
      phase: 'Bound',
      accessModes: memberAt(volume, 'spec', 'accessModes') ?? null,
      // Only a resize changes the capacity of a Bound claim.
      ...(memberAt(claim, 'status', 'capacity', 'storage') === undefined
        ? { capacity: memberAt(volume, 'spec', 'capacity') ?? null }
        : {}),
      ...(attributes === undefined ? {} : { currentVolumeAttributesClassName: attributes }),
    });
  }

  #patch({ metadata: { name, namespace } }: KubeObject, patch: JsonObject): void {
    this.#operations.patch({ resource: claims, namespace, name }, 'merge', patch);
  }

  #patchStatus(claim: KubeObject, status: Record<string, Json>): void {
    const now = objectAt(claim, 'status');
    if (Object.entries(status).every(([name, value]) => equalJson(now[name] ?? null, value)))
      return;
    const { name, namespace } = claim.metadata;
    const place = { resource: claims, namespace, name };
    this.#operations.patch(place, 'merge', { status }, { subresource: 'status' });
  }

  #volume(name: string): KubeObject | undefined {
    return this.#operations.store.collection(volumes).objects.get(name)?.object;
  }
}

const sizeOf = (volume: KubeObject): string => textAt(volume, 'spec', 'capacity', 'storage');

/** Whether the claimRef of the volume names this claim, by uid if it has one; without a claimRef,
 * whether the volume is free and of the claim's class. */
function isFor(volume: KubeObject, claim: KubeObject): boolean {
  const reference = memberAt(volume, 'spec', 'claimRef');
  if (reference === undefined)
    return (
      textAt(volume, 'status', 'phase') === 'Available' &&
      volume.metadata.deletionTimestamp === undefined &&
      (classOf(volume) ?? '') === (classOf(claim) ?? '')
    );
  const { name, namespace, uid } = claim.metadata;
  const isNamed =
    textAt(reference, 'name') === name && textAt(reference, 'namespace') === namespace;
  return isNamed && ['', uid].includes(textAt(reference, 'uid'));
}

function fits(volume: KubeObject, claim: KubeObject): boolean {
  const size = textAt(claim, 'spec', 'resources', 'requests', 'storage');
  const modeOf = (object: KubeObject) => textAt(object, 'spec', 'volumeMode') || 'Filesystem';
  const attributesOf = (object: KubeObject) => textAt(object, 'spec', 'volumeAttributesClassName');
  const offered = textsAt(volume, 'spec', 'accessModes');
  return (
    compareQuantities(sizeOf(volume), size) >= 0 &&
    modeOf(volume) === modeOf(claim) &&
    attributesOf(volume) === attributesOf(claim) &&
    textsAt(claim, 'spec', 'accessModes').every((mode) => offered.includes(mode))
  );
}

/** 'namespace/name' of the claims that a pod uses. */
export function claimsOfPod(pod: KubeObject): string[] {
  const list = memberAt(pod, 'spec', 'volumes');
  return (Array.isArray(list) ? list : []).flatMap((volume) => {
    const name = textAt(volume, 'persistentVolumeClaim', 'claimName');
    return name === '' ? [] : [`${pod.metadata.namespace ?? ''}/${name}`];
  });
}

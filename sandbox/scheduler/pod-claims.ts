import { textAt } from '../api/json-value.ts';
import { claims, classOf } from '../api/kinds/claims.ts';
import { classes } from '../api/kinds/storage.ts';
import { volumes } from '../api/kinds/volumes.ts';
import type { KubeObject } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';
import { BIND_COMPLETED, claimsOfPod } from '../binder/claim-sync.ts';

/** A claim whose volume is created when a node is chosen. */
export interface WaitingClaim {
  readonly claim: KubeObject;
  readonly storageClass: KubeObject;
}

/** The claims of a pod, by what the scheduler has to do about them. */
export interface PodClaims {
  /** The volumes of the claims that are bound. */
  readonly volumes: readonly KubeObject[];
  /** Claims of WaitForFirstConsumer classes that are not Bound yet. */
  readonly waiting: readonly WaitingClaim[];
}

/** Reads the claims of a pod.
 * @returns a text if no node can fit yet, in the words of kube-scheduler */
export function readPodClaims(operations: Operations, pod: KubeObject): PodClaims | string {
  const found: { volumes: KubeObject[]; waiting: WaitingClaim[] } = { volumes: [], waiting: [] };
  let hasUnbound = false;
  for (const key of claimsOfPod(pod)) {
    const claim = operations.store.collection(claims).objects.get(key)?.object;
    if (claim === undefined)
      return `persistentvolumeclaim "${key.slice(key.indexOf('/') + 1)}" not found`;
    const { name, deletionTimestamp } = claim.metadata;
    if (deletionTimestamp !== undefined) return `persistentvolumeclaim "${name}" is being deleted`;
    const waiting = waitingClaim(operations, claim);
    if (isBound(claim)) {
      const volumeName = textAt(claim, 'spec', 'volumeName');
      const volume = operations.store.collection(volumes).objects.get(volumeName)?.object;
      if (volume === undefined)
        return `persistentvolumeclaim "${name}" bound to non-existent persistentvolume "${volumeName}"`;
      found.volumes.push(volume);
    } else if (waiting === undefined) hasUnbound = true;
    else found.waiting.push(waiting);
  }
  return hasUnbound ? 'pod has unbound immediate PersistentVolumeClaims' : found;
}

/** Whether both sides of the binding are written. */
function isBound(claim: KubeObject): boolean {
  return (
    textAt(claim, 'spec', 'volumeName') !== '' &&
    claim.metadata.annotations?.[BIND_COMPLETED] !== undefined
  );
}

function waitingClaim(operations: Operations, claim: KubeObject): WaitingClaim | undefined {
  const storageClass = operations.store
    .collection(classes)
    .objects.get(classOf(claim) ?? '')?.object;
  return storageClass?.['volumeBindingMode'] === 'WaitForFirstConsumer'
    ? { claim, storageClass }
    : undefined;
}

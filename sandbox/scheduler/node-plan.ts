import { memberAt, plainText, textAt } from '../api/json-value.ts';
import { csiDrivers, storageCapacities } from '../api/kinds/storage.ts';
import { volumes } from '../api/kinds/volumes.ts';
import type { KubeObject } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';
import { compareQuantities } from '../api/quantity.ts';
import { SELECTED_NODE } from '../binder/annotations.ts';
import { bestMatch } from '../binder/match.ts';
import { selectsLabels } from '../control/label-selector.ts';
import { acceptsPod, allowsTopology, isReachable } from './node-affinity.ts';
import type { PodClaims, WaitingClaim } from './pod-claims.ts';

/** What has to be written so that a pod can run on a node. */
export interface NodePlan {
  readonly node: KubeObject;
  /** Claims for which a free volume exists. */
  readonly bindings: readonly { readonly claim: KubeObject; readonly volume: KubeObject }[];
  /** Claims whose volume has to be created. */
  readonly provisions: readonly KubeObject[];
}

/** Why a node does not fit, in the words of kube-scheduler. */
const REASON = {
  unschedulable: 'node(s) were unschedulable',
  selector: "node(s) didn't match Pod's node affinity/selector",
  affinity: "node(s) didn't match PersistentVolume's node affinity",
  noVolume: "node(s) didn't find available persistent volumes to bind",
  noSpace: 'node(s) did not have enough free storage',
} as const;

/** Decides whether a pod with these claims fits on a node, as kube-scheduler's VolumeBinding plugin
 * does.
 * @returns the reason where it does not fit */
export function planOn(
  operations: Operations,
  { pod, claims }: { readonly pod: KubeObject; readonly claims: PodClaims },
  node: KubeObject,
): NodePlan | string {
  if (memberAt(node, 'spec', 'unschedulable') === true) return REASON.unschedulable;
  if (!acceptsPod(node, pod)) return REASON.selector;
  if (!claims.volumes.every((volume) => isReachable(volume, node))) return REASON.affinity;
  const bindings: { claim: KubeObject; volume: KubeObject }[] = [];
  const provisions: KubeObject[] = [];
  for (const { claim, storageClass } of bySize(claims.waiting)) {
    const selected = claim.metadata.annotations?.[SELECTED_NODE];
    if (selected !== undefined && selected !== node.metadata.name) return REASON.noVolume;
    const taken = bindings.map(({ volume }) => volume);
    const volume =
      selected === undefined ? freeVolume(operations, { claim, node, taken }) : undefined;
    if (volume !== undefined) bindings.push({ claim, volume });
    else {
      const reason = whyNotCreated(operations, { claim, storageClass }, node);
      if (reason !== undefined) return reason;
      provisions.push(claim);
    }
  }
  return { node, bindings, provisions };
}

const sizeOf = (claim: KubeObject): string =>
  plainText(memberAt(claim, 'spec', 'resources', 'requests', 'storage'));

/** The smallest claim first, so that it takes the smallest volume. */
function bySize(waiting: readonly WaitingClaim[]): readonly WaitingClaim[] {
  return waiting.toSorted((a, b) => compareQuantities(sizeOf(a.claim), sizeOf(b.claim)));
}

function freeVolume(
  operations: Operations,
  wanted: {
    readonly claim: KubeObject;
    readonly node: KubeObject;
    readonly taken: readonly KubeObject[];
  },
): KubeObject | undefined {
  const free = [...operations.store.collection(volumes).objects.values()]
    .map(({ object }) => object)
    .filter(
      (volume) =>
        memberAt(volume, 'spec', 'claimRef') === undefined &&
        !wanted.taken.includes(volume) &&
        isReachable(volume, wanted.node),
    );
  return bestMatch(wanted.claim, free);
}

function whyNotCreated(
  operations: Operations,
  wanted: WaitingClaim,
  node: KubeObject,
): string | undefined {
  const provisioner = textAt(wanted.storageClass, 'provisioner');
  if (provisioner === '' || provisioner === 'kubernetes.io/no-provisioner') return REASON.noVolume;
  if (!allowsTopology(wanted.storageClass, node.metadata.labels ?? {})) return REASON.noVolume;
  return hasCapacity(operations, wanted, node) ? undefined : REASON.noSpace;
}

/** For drivers that say so in their CSIDriver, a CSIStorageCapacity of the class must report enough
 * space for the node. */
function hasCapacity(
  operations: Operations,
  { claim, storageClass }: WaitingClaim,
  node: KubeObject,
): boolean {
  const driver = operations.store
    .collection(csiDrivers)
    .objects.get(textAt(storageClass, 'provisioner'))?.object;
  if (memberAt(driver, 'spec', 'storageCapacity') !== true) return true;
  const size = sizeOf(claim);
  return [...operations.store.collection(storageCapacities).objects.values()].some(({ object }) => {
    const limit = object['maximumVolumeSize'] ?? object['capacity'];
    return (
      textAt(object, 'storageClassName') === storageClass.metadata.name &&
      limit !== undefined &&
      compareQuantities(plainText(limit), size) >= 0 &&
      object['nodeTopology'] !== undefined &&
      selectsLabels(object['nodeTopology'], node.metadata.labels ?? {})
    );
  });
}

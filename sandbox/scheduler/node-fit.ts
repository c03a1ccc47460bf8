import { type Json, memberAt, objectAt, textAt, textsAt } from '../api/json-value.ts';
import type { KubeObject } from '../api/kube-object.ts';
import { SELECTED_NODE } from '#src/kube/keys.ts';
import { type Labels, selectsLabels } from '../control/label-selector.ts';
import type { PodClaims } from './pod-claims.ts';

/** Why a pod does not fit on a node with a full pool, in the words of kube-scheduler. */
export const FULL = 'node(s) did not have enough free storage';

/** Decides whether a pod with these claims fits on a node.
 * @returns the reason if it does not, in the words of kube-scheduler */
export function whyNotOn(node: KubeObject, pod: KubeObject, found: PodClaims): string | undefined {
  const { name, labels = {} } = node.metadata;
  if (memberAt(node, 'spec', 'unschedulable') === true) return 'node(s) were unschedulable';
  const wanted = Object.entries(objectAt(pod, 'spec', 'nodeSelector'));
  if (!wanted.every(([key, value]) => labels[key] === value))
    return "node(s) didn't match Pod's node affinity/selector";
  if (!found.volumes.every((volume) => isReachable(volume, labels)))
    return "node(s) didn't match PersistentVolume's node affinity";
  const isPossible = found.waiting.every(
    ({ claim, storageClass }) =>
      (claim.metadata.annotations?.[SELECTED_NODE] ?? name) === name &&
      allowsTopology(storageClass, labels),
  );
  return isPossible ? undefined : "node(s) didn't find available persistent volumes to bind";
}

/** Whether a node with these labels can use a volume: the volume has no node affinity, or one of
 * its terms matches. */
function isReachable(volume: KubeObject, labels: Labels): boolean {
  const required = memberAt(volume, 'spec', 'nodeAffinity', 'required');
  return (
    required === undefined ||
    listAt(required, 'nodeSelectorTerms').some((term) => selectsLabels(term, labels))
  );
}

/** Whether a class's allowedTopologies contain a node with these labels. Without them every node is
 * allowed. */
function allowsTopology(storageClass: KubeObject, labels: Labels): boolean {
  const terms = listAt(storageClass, 'allowedTopologies');
  return (
    terms.length === 0 ||
    terms.some((term) =>
      listAt(term, 'matchLabelExpressions').every((each) =>
        textsAt(each, 'values').includes(labels[textAt(each, 'key')] ?? ''),
      ),
    )
  );
}

function listAt(value: Json, name: string): readonly Json[] {
  const list = memberAt(value, name);
  return Array.isArray(list) ? list : [];
}

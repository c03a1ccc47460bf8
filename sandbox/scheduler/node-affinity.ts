import { memberAt, objectAt, textAt, textsAt, type Json } from '../api/json-value.ts';
import type { KubeObject } from '../api/kube-object.ts';
import { expressionHolds, type Labels } from '../control/label-selector.ts';

/** Whether a volume can be used on a node: it has no node affinity, or one of the terms matches. */
export function isReachable(volume: KubeObject, node: KubeObject): boolean {
  const required = memberAt(volume, 'spec', 'nodeAffinity', 'required');
  if (required === undefined) return true;
  const terms = memberAt(required, 'nodeSelectorTerms');
  return Array.isArray(terms) && terms.some((term) => termMatches(term, node));
}

/** An empty term matches no node. */
function termMatches(term: Json, { metadata }: KubeObject): boolean {
  const listAt = (name: string): readonly Json[] => {
    const list = memberAt(term, name);
    return Array.isArray(list) ? list : [];
  };
  const expressions = listAt('matchExpressions');
  const fields = listAt('matchFields');
  const names = { 'metadata.name': metadata.name };
  return (
    expressions.length + fields.length > 0 &&
    expressions.every((each) => expressionHolds(each, metadata.labels ?? {})) &&
    fields.every((each) => expressionHolds(each, names))
  );
}

/** Whether a class's allowedTopologies contain a node with these labels. None allow every node. */
export function allowsTopology(storageClass: KubeObject, labels: Labels): boolean {
  const terms = storageClass['allowedTopologies'];
  if (!Array.isArray(terms) || terms.length === 0) return true;
  return terms.some((term) => {
    const expressions = memberAt(term, 'matchLabelExpressions');
    return (
      Array.isArray(expressions) &&
      expressions.length > 0 &&
      expressions.every((each) =>
        textsAt(each, 'values').includes(labels[textAt(each, 'key')] ?? ''),
      )
    );
  });
}

/** Whether a pod's nodeSelector matches a node, and the node accepts pods. */
export function acceptsPod(node: KubeObject, pod: KubeObject): boolean {
  const labels = node.metadata.labels ?? {};
  const wanted = Object.entries(objectAt(pod, 'spec', 'nodeSelector'));
  return wanted.every(([key, value]) => labels[key] === value);
}

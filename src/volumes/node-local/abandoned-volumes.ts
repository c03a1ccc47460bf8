import type { Labels, NodeSelectorTerm, Volume } from '../../kube/objects.ts';
import { matchesNodeAffinity } from '../../topology/node-affinity.ts';
import { catchRefusal } from '../../rules/rule.ts';
import { creatingNode } from './node-of-volume.ts';

/** Whether a volume was on a node that is gone, and on no other: the node created it, or its node
 * affinity names the node, and it matches no node that is there.
 * @param where.labels of all nodes that are there */
export function isOnGoneNode(
  volume: Volume,
  where: { readonly driver: string; readonly node: string; readonly labels: readonly Labels[] },
): boolean {
  const { driver, node, labels } = where;
  const { csi, nodeAffinity } = volume.spec;
  const terms = nodeAffinity?.required?.nodeSelectorTerms;
  if (csi?.driver !== driver || terms === undefined) return false;
  const isOfNode =
    creatingNode(volume, driver) === node || terms.every((term) => names(term, node));
  const isReachable = (each: Labels): boolean =>
    // An affinity that can't be read is left for people.
    catchRefusal(
      () => matchesNodeAffinity(nodeAffinity, each),
      () => true,
    );
  return isOfNode && !labels.some(isReachable);
}

function names({ matchExpressions = [] }: NodeSelectorTerm, node: string): boolean {
  return matchExpressions.some(
    ({ operator, values = [] }) => operator === 'In' && values.length === 1 && values[0] === node,
  );
}

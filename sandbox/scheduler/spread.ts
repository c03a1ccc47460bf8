import { memberAt, textAt } from '../api/json-value.ts';
import type { KubeObject } from '../api/kube-object.ts';

const ZONE = 'topology.kubernetes.io/zone';

/** A pod and the node that it runs on, or is going to. */
export interface PlacedPod {
  readonly pod: KubeObject;
  readonly nodeName: string;
}

/** Sorts the nodes that a pod fits on: the zone with the fewest pods of its controller first, then
 * the node with the fewest of them, then the zone and the node with the fewest pods, then by name.
 */
export function spreadOrder(
  pod: KubeObject,
  candidates: readonly KubeObject[],
  {
    nodes,
    placed,
  }: { readonly nodes: readonly KubeObject[]; readonly placed: readonly PlacedPod[] },
): readonly KubeObject[] {
  const zones = new Map(nodes.map((node) => [node.metadata.name, zoneOf(node)]));
  const owner = controllerOf(pod);
  const siblings = placed.filter((each) => owner !== '' && controllerOf(each.pod) === owner);
  const inZone = (pods: readonly PlacedPod[], node: KubeObject): number =>
    pods.filter(({ nodeName }) => zones.get(nodeName) === zoneOf(node)).length;
  const onNode = (pods: readonly PlacedPod[], { metadata }: KubeObject): number =>
    pods.filter(({ nodeName }) => nodeName === metadata.name).length;
  const ranked = candidates.map((node) => ({
    node,
    rank: [
      inZone(siblings, node),
      onNode(siblings, node),
      inZone(placed, node),
      onNode(placed, node),
    ],
  }));
  return ranked
    .sort(
      (a, b) =>
        a.rank.map((count, i) => count - (b.rank[i] ?? 0)).find((each) => each !== 0) ??
        (a.node.metadata.name < b.node.metadata.name ? -1 : 1),
    )
    .map(({ node }) => node);
}

/** A node without a zone counts as one of its own. */
function zoneOf({ metadata }: KubeObject): string {
  const zone = metadata.labels?.[ZONE];
  return zone === undefined ? `node ${metadata.name}` : `zone ${zone}`;
}

function controllerOf({ metadata }: KubeObject): string {
  const owner = metadata.ownerReferences?.find((each) => memberAt(each, 'controller') === true);
  return textAt(owner, 'uid');
}

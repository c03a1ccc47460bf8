import { PROVISIONER_IDENTITY, VOLUME_FINALIZER } from '../kube/keys.ts';
import type { Class, Labels, Volume } from '../kube/objects.ts';
import { catchRefusal } from '../rules/rule.ts';
import { type ClusterTopology, termOf } from '../topology/cluster-topology.ts';
import { matchesNodeAffinity } from '../topology/node-affinity.ts';
import { flattenAllowed } from '../topology/requirement.ts';
import { compareTerms, isSubset, type TopologyTerm, toSegments } from '../topology/term.ts';

/** A node on which the volume of a claim may be created. */
export interface EligibleNode {
  readonly name: string;
  /** The node's part of the cluster, for GetCapacity; undefined for a driver without topology. */
  readonly segments: Readonly<Record<string, string>> | undefined;
}

/** The nodes among which the volume of a claim without a selected node may be created: those with a
 * gateway, on which the driver is registered with keys that the node has as labels, and which the
 * class allows. Upstream: external-provisioner pkg/controller/controller.go checkNode.
 * @param given.topology undefined for a driver without topology, for which all are eligible */
export function eligibleNodes(given: {
  readonly cls: Pick<Class, 'allowedTopologies'>;
  readonly readyNodes: readonly string[];
  readonly topology: Pick<ClusterTopology, 'csiNode' | 'node'> | undefined;
}): readonly EligibleNode[] {
  const { topology, readyNodes, cls } = given;
  if (topology === undefined) return readyNodes.map((name) => ({ name, segments: undefined }));
  const isAllowed = allowedIn(cls);
  return readyNodes.flatMap((name) => {
    const keys = topology.csiNode(name)?.topologyKeys ?? [];
    const term = keys.length === 0 ? undefined : termOf(topology.node(name)?.labels ?? {}, keys);
    return term === undefined || !isAllowed(term) ? [] : [{ name, segments: toSegments(term) }];
  });
}

/** Whether a class allows a part of the cluster. What it allows is worked out once for all nodes,
 * and found by the first segment of a term: there may be thousands of both. */
function allowedIn({
  allowedTopologies = [],
}: Pick<Class, 'allowedTopologies'>): (term: TopologyTerm) => boolean {
  const allowed = catchRefusal<readonly TopologyTerm[]>(
    () => flattenAllowed(allowedTopologies),
    // Too many. The claim is refused for that when it is planned.
    () => [[]],
  );
  if (allowedTopologies.length === 0 || allowed.some((each) => each.length === 0))
    return () => true;
  const byFirst = new Map<string, TopologyTerm[]>();
  for (const each of allowed) {
    const first = JSON.stringify(each[0]);
    const others = byFirst.get(first);
    if (others === undefined) byFirst.set(first, [each]);
    else others.push(each);
  }
  return (term) =>
    term.some((segment) =>
      byFirst.get(JSON.stringify(segment))?.some((each) => isSubset(each, term)),
    );
}

/** The nodes whose gateway can be called. */
export interface NodeGateways {
  isReady(node: string): boolean;
  /** By name. */
  readyNodes(): readonly string[];
}

/** Which node deletes a volume, or why none can now. */
export type DeletingNode =
  | { readonly kind: 'node'; readonly name: string }
  /** `nodes`: those whose gateway would do. `isGone`: there is no such node in the cluster. */
  | {
      readonly kind: 'none';
      readonly message: string;
      readonly nodes: readonly string[];
      readonly isGone: boolean;
    };

/** What nodes and their gateways are like now. */
export interface NodeLookups {
  readonly driver: string;
  readonly gateways: NodeGateways;
  /** undefined for a driver without topology. */
  readonly topology: ClusterTopology | undefined;
}

/** Chooses the node through which a volume is deleted: one from which it can be reached, and if
 * there are several the one that created it. Upstream: external-provisioner
 * pkg/controller/controller.go Delete, where every node asks whether the volume is its own.
 * @throws RefusedError for an affinity that can't be read */
export function chooseDeletingNode(volume: Volume, lookups: NodeLookups): DeletingNode {
  const { driver, gateways, topology } = lookups;
  const creator = creatingNode(volume, driver);
  const affinity = volume.spec.nodeAffinity;
  const isLimited = topology !== undefined && affinity?.required !== undefined;
  // Nothing says that another node has the volume. A driver that has not answers OK.
  if (!isLimited && creator !== undefined)
    return gateways.isReady(creator)
      ? { kind: 'node', name: creator }
      : waitForCreator(creator, topology);
  const reachable = isLimited
    ? nodesWhere(topology, (labels) => matchesNodeAffinity(affinity, labels))
    : gateways.readyNodes();
  const ready = reachable.filter((node) => gateways.isReady(node));
  const name = creator !== undefined && ready.includes(creator) ? creator : ready[0];
  if (name !== undefined) return { kind: 'node', name };
  return isLimited
    ? explainUnreachable(reachable, creator)
    : { kind: 'none', message: 'no node has a gateway that is ready', nodes: [], isGone: false };
}

/** Chooses a node of a part of the cluster, for a question that each of them answers alike: of
 * several with a gateway the first. */
export function chooseNodeOfSegment(
  segment: TopologyTerm,
  { gateways, topology }: Omit<NodeLookups, 'driver'>,
): string | undefined {
  const keys = segment.map(([key]) => key);
  return gateways.readyNodes().find((name) => {
    const term = termOf(topology?.node(name)?.labels ?? {}, keys);
    return term !== undefined && compareTerms(term, segment) === 0;
  });
}

/** The node that created a volume, by the identity that its provisioner left in it: a time, a
 * number, the driver and, if the provisioner worked for one node, that node. */
export function creatingNode({ spec }: Volume, driver: string): string | undefined {
  const identity = spec.csi?.volumeAttributes?.[PROVISIONER_IDENTITY] ?? '';
  const begin = /^\d+-\d+-/.exec(identity)?.[0];
  if (begin === undefined) return undefined;
  const rest = identity.slice(begin.length);
  return rest.startsWith(`${driver}-`) ? rest.slice(driver.length + 1) : undefined;
}

function nodesWhere(topology: ClusterTopology, test: (labels: Labels) => boolean): string[] {
  const names: string[] = [];
  for (const { name, labels } of topology.nodes()) if (test(labels)) names.push(name);
  return names.sort();
}

const IF_NODE_IS_GONE =
  'if its node is gone for good, so is the volume: delete the PersistentVolume and remove its ' +
  `finalizer ${VOLUME_FINALIZER}`;

function waitForCreator(creator: string, topology: ClusterTopology | undefined): DeletingNode {
  const message = `no gateway is ready on node ${creator}, which created the volume; ${IF_NODE_IS_GONE}`;
  const isGone = topology !== undefined && topology.node(creator) === undefined;
  return { kind: 'none', message, nodes: [creator], isGone };
}

function explainUnreachable(
  reachable: readonly string[],
  creator: string | undefined,
): DeletingNode {
  const [first] = reachable;
  if (first !== undefined) {
    const others = reachable.length > 1 ? ` and ${reachable.length - 1} others` : '';
    const message = `no gateway is ready on node ${first}${others}, where the volume is`;
    return { kind: 'none', message, nodes: reachable, isGone: false };
  }
  return {
    kind: 'none',
    message:
      'no node matches the node affinity of the volume' +
      `${creator === undefined ? '' : `, which node ${creator} created`}; ${IF_NODE_IS_GONE}`,
    nodes: creator === undefined ? [] : [creator],
    isGone: true,
  };
}

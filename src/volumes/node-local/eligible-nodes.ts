import type { Class } from '../../kube/objects.ts';
import { catchRefusal } from '../../rules/rule.ts';
import { flattenAllowed } from '../../topology/requirement.ts';
import { type ClusterTopology, termOf } from '../../topology/cluster-topology.ts';
import { isSubset, type TopologyTerm, toSegments } from '../../topology/term.ts';

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

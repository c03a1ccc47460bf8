import type { Labels, TopologySelectorTerm } from '#src/kube/objects.ts';
import type { ClusterTopology, CsiNodeView, NodeView } from '#src/topology/cluster-topology.ts';

/** A node of a test. */
export interface TestNode {
  /** node-0, node-1 and so on where absent. */
  readonly name?: string;
  /** Undefined: there is no Node object. */
  readonly labels?: Labels | undefined;
  /** The keys of its CSINode. 'not registered': it lacks the driver; undefined: there is none. */
  readonly keys?: readonly string[] | 'not registered' | undefined;
}

/** A cluster in memory. */
export function aCluster(given: readonly TestNode[] = []): ClusterTopology {
  const nodes = new Map<string, NodeView>();
  const csiNodes = new Map<string, CsiNodeView>();
  for (const [i, { name = `node-${i}`, labels, keys }] of given.entries()) {
    if (labels !== undefined) nodes.set(name, { name, labels });
    if (keys === 'not registered') csiNodes.set(name, { name, topologyKeys: undefined });
    else if (keys !== undefined) csiNodes.set(name, { name, topologyKeys: keys });
  }
  return {
    node: (name) => nodes.get(name),
    csiNode: (name) => csiNodes.get(name),
    nodes: () => nodes.values(),
    csiNodes: () => csiNodes.values(),
    computed: { terms: new Map() },
  };
}

/** Nodes with these labels, whose CSINodes have registered the labels' keys. */
export function registered(...labels: readonly Labels[]): readonly TestNode[] {
  return labels.map((each) => ({ labels: each, keys: Object.keys(each) }));
}

/** Topologies that a class allows: one term for each argument. */
export function allow(
  ...terms: readonly Readonly<Record<string, readonly string[]>>[]
): readonly TopologySelectorTerm[] {
  return terms.map((term) => ({
    matchLabelExpressions: Object.entries(term).map(([key, values]) => ({ key, values })),
  }));
}

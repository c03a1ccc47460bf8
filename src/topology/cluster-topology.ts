import type { Labels } from '../kube/objects.ts';
import type { TopologyTerm } from './term.ts';

/** A CSINode as one driver sees it. */
export interface CsiNodeView {
  readonly name: string;
  /** The keys that the driver registered on the node, possibly none; undefined where it is not
   * registered. */
  readonly topologyKeys: readonly string[] | undefined;
}

/** A Node: its name and its labels. */
export interface NodeView {
  readonly name: string;
  readonly labels: Labels;
}

/** The cluster's nodes as one driver sees them, held in memory. */
export interface ClusterTopology {
  /** undefined: there is no such CSINode. */
  csiNode(name: string): CsiNodeView | undefined;
  /** undefined: there is no such Node. */
  node(name: string): NodeView | undefined;
  csiNodes(): Iterable<CsiNodeView>;
  nodes(): Iterable<NodeView>;
  /** What rules have computed of all nodes; a new one after each change of a node. Absent: nothing
   * is kept. */
  readonly computed?: ComputedTopology;
}

/** Results that cost a look at every node, kept for the next claim. */
export interface ComputedTopology {
  registeredKeys?: readonly string[];
  /** Sorted terms of the nodes, by the keys as JSON. */
  readonly terms: Map<string, readonly TopologyTerm[]>;
}

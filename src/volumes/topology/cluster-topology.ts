import type { Labels } from '../../kube/objects.ts';

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
}

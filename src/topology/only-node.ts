import type { WatchedTopology } from './requirement.ts';

/** The cluster as a provisioner sees it that runs on one node: as if there were no others. So what
 * is asked of the driver of a node names that node alone. Upstream: external-provisioner
 * cmd/csi-provisioner/csi-provisioner.go, the static objects of --node-deployment. */
export function onlyNode(topology: WatchedTopology, name: string): WatchedTopology {
  const csiNode = (wanted: string) => (wanted === name ? topology.csiNode(name) : undefined);
  const node = (wanted: string) => (wanted === name ? topology.node(name) : undefined);
  const listOf = <T>(found: T | undefined): readonly T[] => (found === undefined ? [] : [found]);
  return {
    csiNode,
    node,
    csiNodes: () => listOf(csiNode(name)),
    nodes: () => listOf(node(name)),
    versionOf: (resource) => topology.versionOf(resource),
  };
}

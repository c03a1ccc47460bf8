import { termOf } from '../../topology/cluster-terms.ts';
import type { ClusterTopology } from '../../topology/cluster-topology.ts';
import type { TopologyTerm } from '../../topology/term.ts';

/** The parts of the cluster that the driver tells apart, each once: for every node that has the
 * driver, the values that the node's labels have for the driver's keys. A node that lacks one of
 * these labels, as while a driver registers, has no segment. A driver without keys has one empty
 * segment, the whole cluster. Upstream: external-provisioner pkg/capacity/topology/nodes.go
 * nodeTopology.sync. */
export function segmentsOf(
  topology: Pick<ClusterTopology, 'csiNodes' | 'node'>,
): readonly TopologyTerm[] {
  const segments = new Map<string, TopologyTerm>();
  for (const { name, topologyKeys } of topology.csiNodes()) {
    const labels = topology.node(name)?.labels;
    if (topologyKeys === undefined || labels === undefined) continue;
    const segment = termOf(labels, [...new Set(topologyKeys)]);
    if (segment !== undefined) segments.set(segmentText(segment), segment);
  }
  return [...segments.values()];
}

/** A text that two segments share only if they are equal. */
export function segmentText(segment: TopologyTerm): string {
  return JSON.stringify(segment);
}

/** For people: `zone=a,rack=7`; `the whole cluster` for the empty segment. */
export function describeSegment(segment: TopologyTerm): string {
  if (segment.length === 0) return 'the whole cluster';
  return segment.map(([key, value]) => `${key}=${value}`).join(',');
}

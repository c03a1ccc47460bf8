import { nodeAddress } from '../../gateway-client/node-address.ts';
import type { NodeGatewayPool } from '../../gateway-client/node-pool.ts';
import { termOf } from '../../volumes/topology/cluster-terms.ts';
import type { ClusterTopology } from '../../volumes/topology/cluster-topology.ts';
import { compareTerms, type TopologyTerm } from '../../volumes/topology/term.ts';

/** The gateway on a node of a segment, of several the first by name; undefined where there is none
 * now. A driver on a node knows the capacity of that node's segment only. */
export function findSegmentGateway(
  segment: TopologyTerm,
  topology: Pick<ClusterTopology, 'node'> | undefined,
  gateways: Pick<NodeGatewayPool, 'readyNodes'>,
): string | undefined {
  const keys = segment.map(([key]) => key);
  const node = gateways.readyNodes().find((name) => {
    const term = termOf(topology?.node(name)?.labels ?? {}, keys);
    return term !== undefined && compareTerms(term, segment) === 0;
  });
  return node === undefined ? undefined : nodeAddress(node);
}

import type { Class } from '../../kube/objects.ts';
import { catchRefusal } from '../refused-error.ts';
import { onlyNode } from '../topology/only-node.ts';
import {
  topologyRequirement,
  type TopologyRequirement,
  type WatchedTopology,
} from '../topology/requirement.ts';

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
  readonly claimName: string;
  readonly cls: Pick<Class, 'metadata' | 'allowedTopologies'>;
  readonly readyNodes: readonly string[];
  readonly topology: WatchedTopology | undefined;
}): readonly EligibleNode[] {
  const { topology, readyNodes, claimName, cls } = given;
  if (topology === undefined) return readyNodes.map((name) => ({ name, segments: undefined }));
  return readyNodes.flatMap((name) => {
    const requirement = catchRefusal<TopologyRequirement | undefined>(
      () =>
        topologyRequirement({
          claimName,
          cls,
          selectedNode: name,
          topology: onlyNode(topology, name),
          strictTopology: true,
          immediateTopology: true,
        }),
      () => undefined,
    );
    const segments = requirement?.requisite[0]?.segments;
    return segments === undefined ? [] : [{ name, segments }];
  });
}

import { PROVISIONER_IDENTITY } from '../kube/keys.ts';
import type { Labels, Volume } from '../kube/objects.ts';
import { matchesNodeAffinity } from '../topology/node-affinity.ts';

/** Whether a process that serves one node deletes a volume: if the node can reach it or, for a
 * volume without affinity, unless another node created it. Upstream: external-provisioner
 * pkg/controller/controller.go Delete.
 * @param own.labels  of the Node; undefined for a driver without topology */
export function isOnNode(
  volume: Volume,
  own: {
    readonly driver: string;
    readonly node: string;
    readonly labels: Labels | undefined;
  },
): boolean {
  const { nodeAffinity } = volume.spec;
  if (own.labels !== undefined && nodeAffinity?.required !== undefined)
    return matchesNodeAffinity(nodeAffinity, own.labels);
  // A driver that does not have the volume answers OK.
  const creator = creatingNode(volume, own.driver);
  return creator === undefined || creator === own.node;
}

/** The node that created a volume, by the identity that its provisioner wrote into it: a time, a
 * number, the driver and, for a provisioner of one node, that node. */
export function creatingNode({ spec }: Volume, driver: string): string | undefined {
  const identity = spec.csi?.volumeAttributes?.[PROVISIONER_IDENTITY] ?? '';
  const begin = /^\d+-\d+-/.exec(identity)?.[0];
  if (begin === undefined) return undefined;
  const rest = identity.slice(begin.length);
  return rest.startsWith(`${driver}-`) ? rest.slice(driver.length + 1) : undefined;
}

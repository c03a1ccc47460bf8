import type { KubeClient } from '#src/kube/client.ts';
import { ZONE } from '#src/kube/keys.ts';
import type { KubeObject } from '#src/kube/objects.ts';
import { csiNodes, nodes } from '#src/kube/resources.ts';
import { NODE_KEY } from './driver/pools.ts';
import { csiDrivers } from './resources.ts';

const DRIVER = 'sample.csi.sutler.dev';

/** The nodes of `npm start`, and the sizes of their pools. node-b1's pool is smaller than the claim
 * of examples/4-full-node.yaml. */
export const SANDBOX_NODES = [
  { name: 'node-a1', zone: 'zone-a', size: '10Gi' },
  { name: 'node-a2', zone: 'zone-a', size: '10Gi' },
  { name: 'node-b1', zone: 'zone-b', size: '4Gi' },
  { name: 'node-b2', zone: 'zone-b', size: '10Gi' },
] as const;

/** Creates the nodes, and what the kubelets and the driver's installation would create for them:
 * CSINodes with the driver's topology keys, and the CSIDriver. */
export async function createNodes(client: KubeClient, topology: boolean): Promise<void> {
  await client.create(csiDrivers, undefined, {
    metadata: { name: DRIVER },
    spec: { attachRequired: false },
  });
  for (const { name, zone } of SANDBOX_NODES) {
    const labels = {
      'kubernetes.io/hostname': name,
      [ZONE]: zone,
      ...(topology ? { [NODE_KEY]: name } : {}),
    };
    const node = await client.create<KubeObject>(nodes, undefined, {
      metadata: { name, labels },
      status: {
        conditions: [{ type: 'Ready', status: 'True', reason: 'KubeletReady' }],
        nodeInfo: { kubeletVersion: 'sandbox' },
      },
    });
    const { uid } = node.metadata;
    const topologyKeys = topology ? [NODE_KEY, ZONE] : [];
    await client.create(csiNodes, undefined, {
      metadata: { name, ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name, uid }] },
      spec: { drivers: [{ name: DRIVER, nodeID: name, topologyKeys }] },
    });
  }
}

/** "node-a1 in zone-a"; the name alone for a node that the sandbox did not create. */
export function describeNode(name: string): string {
  const node = SANDBOX_NODES.find((each) => each.name === name);
  return node === undefined ? name : `${name} in ${node.zone}`;
}

import type { KubeClient } from '#src/kube/client.ts';
import { ZONE } from '#src/kube/keys.ts';
import { csiNodes, nodes } from '#src/kube/resources.ts';
import { NODE_KEY } from './driver/pools.ts';
import { csiDrivers } from './resources.ts';

const DRIVER = 'sample.csi.sutler.dev';

/** The nodes of `npm start`, and the sizes of their pools. The one of node-b1 is smaller than the
 * claim of examples/4-full-node.yaml. */
export const SANDBOX_NODES = [
  { name: 'node-a1', zone: 'zone-a', size: '10Gi' },
  { name: 'node-a2', zone: 'zone-a', size: '10Gi' },
  { name: 'node-b1', zone: 'zone-b', size: '4Gi' },
  { name: 'node-b2', zone: 'zone-b', size: '10Gi' },
] as const;

/** Creates the nodes, and what the kubelets and the driver's installation would create for them:
 * CSINodes with the driver's topology keys, and the CSIDriver. */
export async function createNodes(
  client: KubeClient,
  options: {
    readonly topology: boolean;
    /** The scheduler heeds the driver's CSIStorageCapacity objects. */
    readonly storageCapacity: boolean;
  },
): Promise<void> {
  const { topology, storageCapacity } = options;
  await client.create(csiDrivers, undefined, {
    metadata: { name: DRIVER },
    spec: { attachRequired: false, storageCapacity },
  });
  for (const { name, zone } of SANDBOX_NODES) {
    const node = await client.create<{ readonly metadata: { readonly uid: string } }>(
      nodes,
      undefined,
      nodeObject({ name, zone, topology }),
    );
    const { uid } = node.metadata;
    await client.create(csiNodes, undefined, {
      metadata: { name, ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name, uid }] },
      spec: {
        drivers: [{ name: DRIVER, nodeID: name, ...(topology ? { topologyKeys: KEYS } : {}) }],
      },
    });
  }
}

const KEYS = [NODE_KEY, ZONE];

function nodeObject(node: {
  readonly name: string;
  readonly zone: string;
  readonly topology: boolean;
}): object {
  const { name, zone, topology } = node;
  return {
    metadata: {
      name,
      labels: {
        'kubernetes.io/hostname': name,
        [ZONE]: zone,
        ...(topology ? { [NODE_KEY]: name } : {}),
      },
    },
    status: {
      conditions: [{ type: 'Ready', status: 'True', reason: 'KubeletReady' }],
      nodeInfo: { kubeletVersion: 'sandbox' },
    },
  };
}

/** "node-a1 in zone-a"; undefined for a node that the sandbox did not create. */
export function describeNode(name: string): string | undefined {
  const node = SANDBOX_NODES.find((each) => each.name === name);
  return node === undefined ? undefined : `${node.name} in ${node.zone}`;
}

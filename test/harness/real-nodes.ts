import assert from 'node:assert/strict';
import type { Connection, Fields } from '../conformance/connection.ts';

const NODES = '/api/v1/nodes';

/** Creates a node without a kubelet on which kube-scheduler places pods.
 * @param given.driver registered with the keys of the labels; undefined: no driver is registered */
export async function makeNode(
  api: Connection,
  given: {
    readonly name: string;
    readonly driver: string | undefined;
    readonly labels: Readonly<Record<string, string>>;
  },
): Promise<void> {
  const { name, driver, labels } = given;
  await api.create(NODES, {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name, labels: { ...labels, 'kubernetes.io/hostname': name } },
  });
  const topologyKeys = Object.keys(labels);
  await api.create('/apis/storage.k8s.io/v1/csinodes', {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'CSINode',
    metadata: { name },
    spec: {
      drivers: driver === undefined ? [] : [{ name: driver, nodeID: name, topologyKeys }],
    },
  });
  const room = { cpu: '4', memory: '8Gi', pods: '110' };
  await patch(api, `${NODES}/${name}/status`, {
    status: {
      capacity: room,
      allocatable: room,
      conditions: [{ type: 'Ready', status: 'True', reason: 'Test', message: '' }],
    },
  });
  // The API server taints every new node, and no controller takes that away here.
  await patch(api, `${NODES}/${name}`, { spec: { taints: null } });
}

async function patch(api: Connection, path: string, body: Fields): Promise<void> {
  const reply = await api.patch('merge', path, body);
  assert.equal(reply.status, 200, reply.text);
}

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { csiNodes, nodes } from '#src/kube/resources.ts';
import { csiNodes as storedCsiNodes } from '../../sandbox/api/kinds/storage.ts';
import { nodes as storedNodes } from '../../sandbox/api/kinds/core.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';

const NODES = 5_000;
const MIB = 1024 ** 2;
const DRIVER = 'a.example.com';

/** What a node's process measures of itself: bytes in use after a collection. */
interface Memory {
  readonly before: number;
  readonly after: number;
  readonly fingerprintMs: number;
}

describe(`a view of ${NODES} nodes`, () => {
  let cluster: SandboxCluster;
  before(async () => {
    cluster = await openSandboxCluster();
    const { operations } = cluster.api;
    for (let i = 0; i < NODES; i += 1) {
      const name = `ip-10-${i >> 8}-${i & 255}-17.eu-central-1.compute.internal`;
      operations.create(storedNodes, undefined, {
        apiVersion: 'v1',
        kind: nodes.kind,
        metadata: { name, labels: labelsOf(name, i), annotations: { blob: 'x'.repeat(2_000) } },
        status: { images: Array.from({ length: 50 }, (_, n) => ({ names: [`image-${n}`] })) },
      });
      operations.create(storedCsiNodes, undefined, {
        apiVersion: 'storage.k8s.io/v1',
        kind: csiNodes.kind,
        metadata: { name },
        spec: {
          drivers: [DRIVER, 'b.example.com'].map((driver) => ({
            name: driver,
            nodeID: name,
            topologyKeys: ['topology.kubernetes.io/zone', `topology.${driver}/zone`],
          })),
        },
      });
    }
  });
  after(() => cluster.close());

  it('takes less than 12 MiB', async (test) => {
    const program = fileURLToPath(new URL('node-memory-program.js', import.meta.url));
    const child = spawn(process.execPath, ['--expose-gc', program, cluster.kubeconfig, DRIVER], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let text = '';
    child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
    assert.deepEqual(await once(child, 'close'), [0, null]);
    const { before, after, fingerprintMs } = JSON.parse(text) as Memory;
    const grownMib = (after - before) / MIB;
    test.diagnostic(`${grownMib.toFixed(1)} MiB, fingerprints ${fingerprintMs.toFixed(1)} ms`);
    // With all metadata kept it would be 16 MiB.
    assert.ok(grownMib < 12, `${grownMib.toFixed(1)} MiB`);
  });
});

/** As a node of a cloud has them. */
function labelsOf(name: string, i: number): Record<string, string> {
  const zone = `eu-central-1${'abc'[i % 3]}`;
  return {
    'beta.kubernetes.io/arch': 'amd64',
    'beta.kubernetes.io/instance-type': 'm5.2xlarge',
    'beta.kubernetes.io/os': 'linux',
    'example.com/capacityType': 'ON_DEMAND',
    'example.com/nodegroup': `workers-${i % 20}`,
    'example.com/nodegroup-image': 'image-0123456789abcdef0',
    'example.com/source-template': `template-${i % 7}`,
    'failure-domain.beta.kubernetes.io/region': 'eu-central-1',
    'failure-domain.beta.kubernetes.io/zone': zone,
    'kubernetes.io/arch': 'amd64',
    'kubernetes.io/hostname': name,
    'kubernetes.io/os': 'linux',
    'node.kubernetes.io/instance-type': 'm5.2xlarge',
    'topology.a.example.com/zone': zone,
    'topology.b.example.com/zone': zone,
    'topology.kubernetes.io/region': 'eu-central-1',
    'topology.kubernetes.io/zone': zone,
    team: `team-${i % 30}`,
  };
}

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, KubeObject, StorageCapacity, Volume } from '#src/kube/objects.ts';
import {
  claims,
  classes,
  csiNodes,
  nodes,
  storageCapacities,
  volumes,
} from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { selectedNodeOf } from '#src/volumes/eligibility.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { VolumeLedger } from '../harness/change-over/volume-ledger.ts';
import { type DropIn, startDropIn } from '../harness/drop-in-bed.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const DRIVER = 'sample.csi.sutler.dev';
const KEY = 'topology.sample.example/node';
const MIB = 1024n ** 2n;
/** A claim is in doubt for 12 s. */
const TIMES = ['--timeout=1s', '--settle-time=1s'];
const CAPACITY = [
  '--enable-capacity',
  '--capacity-ownerref-level=-1',
  '--capacity-poll-interval=200ms',
  '--kube-api-capacity-qps=0',
];

interface NodePart {
  readonly driver: SampleDriver;
  readonly ledger: VolumeLedger;
  sutler: DropIn;
}

describe('sutler in the place of external-provisioner with --node-deployment', () => {
  const closers = new Closers();
  const parts = new Map<string, NodePart>();
  let kube: KubeClient;
  let folder: string;
  let cluster: SandboxCluster;

  const partOf = (node: string): NodePart => {
    const part = parts.get(node);
    assert.ok(part);
    return part;
  };
  const startOn = async (node: string, socket: string): Promise<DropIn> => {
    const sutler = await startDropIn({
      args: [`--kubeconfig=${cluster.kubeconfig}`, '--node-deployment', ...TIMES, ...CAPACITY],
      socket,
      namespace: 'default',
      env: { TMPDIR: folder, HOSTNAME: node, NODE_NAME: node, NAMESPACE: 'default' },
    });
    closers.add('sutler', sutler.stop);
    return sutler;
  };
  const addNode = async (node: string, capacityBytes: bigint): Promise<void> => {
    await kube.create<KubeObject>(nodes, undefined, {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: node, labels: { [KEY]: node } },
    });
    await kube.create<KubeObject>(csiNodes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'CSINode',
      metadata: { name: node },
      spec: { drivers: [{ name: DRIVER, nodeID: node, topologyKeys: [KEY] }] },
    });
    const ledger = new VolumeLedger(() => false);
    const driver = await startSampleDriver({
      socket: join(folder, `${node}.sock`),
      dataDir: join(folder, `${node}-volumes`),
      name: DRIVER,
      nodeId: node,
      topology: { [KEY]: node },
      capacityBytes,
      delayMs: 200,
      onCall: ledger.onCall,
    });
    closers.add('driver', () => driver.close());
    parts.set(node, { driver, ledger, sutler: await startOn(node, driver.socket) });
  };

  before(async () => {
    cluster = await openSandboxCluster({ binder: true });
    closers.add('cluster', () => cluster.close());
    folder = await mkdtemp(join(tmpdir(), 'sutler-nodes-'));
    closers.add('folder', () => rm(folder, { recursive: true, force: true }));
    kube = await cluster.client();
    for (const volumeBindingMode of ['Immediate', 'WaitForFirstConsumer'])
      await kube.create(classes, undefined, {
        apiVersion: 'storage.k8s.io/v1',
        kind: 'StorageClass',
        metadata: { name: volumeBindingMode.toLowerCase() },
        provisioner: DRIVER,
        reclaimPolicy: 'Delete',
        volumeBindingMode,
      });
    await addNode('small', 20n * MIB);
    await addNode('large', 1024n * MIB);
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  const createClaim = (name: string, o: { node?: string; storage?: string } = {}) =>
    kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: {
        name,
        namespace: 'default',
        annotations: o.node === undefined ? {} : { 'volume.kubernetes.io/selected-node': o.node },
      },
      spec: {
        storageClassName: o.node === undefined ? 'immediate' : 'waitforfirstconsumer',
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: o.storage ?? '1Mi' } },
      },
    });
  const claim = async (name: string): Promise<Claim> => {
    const found = await kube.get<Claim>(claims, { namespace: 'default', name });
    assert.ok(found);
    return found;
  };
  const isBound = async (name: string): Promise<boolean> =>
    (await claim(name)).status?.phase === 'Bound';
  const namesOn = (node: string): readonly string[] =>
    partOf(node)
      .driver.volumes()
      .map(({ name }) => name);
  const pvNameOf = async (name: string): Promise<string> =>
    `pvc-${(await claim(name)).metadata.uid}`;

  it('each node makes the volumes of its own claims', async () => {
    for (const node of parts.keys()) await createClaim(`on-${node}`, { node });
    for (const node of parts.keys()) {
      await until(() => isBound(`on-${node}`), `on-${node} is Bound`);
      assert.deepEqual(namesOn(node), [await pvNameOf(`on-${node}`)]);
    }
  });

  it('a claim that binds at once is made once, by the node that wrote itself to it', async () => {
    const names = Array.from({ length: 8 }, (_, i) => `burst-${i}`);
    await Promise.all(names.map((name) => createClaim(name)));
    for (const name of names) {
      await until(() => isBound(name), `${name} is Bound`);
      const pvName = await pvNameOf(name);
      const made = [...parts.keys()].filter((node) => namesOn(node).includes(pvName));
      assert.deepEqual(made, [selectedNodeOf(await claim(name))]);
    }
  });

  it('a claim that does not fit on one node is taken by another, without a warning', async () => {
    await createClaim('wide', { storage: '100Mi' });
    await until(() => isBound('wide'), 'wide is Bound');
    assert.equal(selectedNodeOf(await claim('wide')), 'large');
    const events = { group: '', version: 'v1', plural: 'events', kind: 'Event', namespaced: true };
    const { items } = await kube.list<KubeObject & { readonly type: string }>(events, {});
    assert.deepEqual(
      items.filter(({ type }) => type === 'Warning'),
      [],
    );
  });

  it('each node publishes its own capacity, and leaves that of the other alone', async () => {
    const published = async () => {
      const { items } = await kube.list<StorageCapacity>(storageCapacities, {
        namespace: 'default',
      });
      return items.map(({ metadata, nodeTopology }) => ({
        uid: metadata.uid,
        managedBy: metadata.labels?.['csi.storage.k8s.io/managed-by'],
        node: nodeTopology?.matchLabels?.[KEY],
      }));
    };
    await until(async () => (await published()).length === 2, 'both nodes have published');
    const before = await published();
    assert.deepEqual(before.map(({ managedBy, node }) => [managedBy, node]).sort(), [
      ['external-provisioner-large', 'large'],
      ['external-provisioner-small', 'small'],
    ]);
    for (const [node, { driver }] of parts) {
      const asked = driver.counts.get('GetCapacity') ?? 0;
      const isAgain = () => (driver.counts.get('GetCapacity') ?? 0) > asked + 2;
      await until(isAgain, `${node} is asked again`);
    }
    assert.deepEqual(await published(), before);
  });

  it('a volume is deleted by its own node alone', async () => {
    const { items } = await kube.list<Claim>(claims, { namespace: 'default' });
    const made = new Map([...parts.keys()].map((node) => [node, namesOn(node).length]));
    for (const { metadata } of items)
      await kube.delete(claims, { namespace: 'default', name: metadata.name });
    const left = async () => (await kube.list<Volume>(volumes, {})).items.length;
    await until(async () => (await left()) === 0, 'all PVs are gone', 20_000);
    for (const [node, { driver }] of parts) {
      assert.deepEqual(namesOn(node), []);
      assert.equal(driver.counts.get('DeleteVolume'), made.get(node));
    }
  });
});

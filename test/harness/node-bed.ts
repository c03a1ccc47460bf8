import assert from 'node:assert/strict';
import { main as ingestMain } from '#src/ingest/main.ts';
import { main as jobsMain } from '#src/jobs/main.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, KubeObject, Volume } from '#src/kube/objects.ts';
import { claims, classes, csiNodes, endpointSlices, nodes, volumes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import type { Host } from '#src/runtime/process.ts';
import { startBinder } from '../../sandbox/binder/binder.ts';
import {
  type SampleDriver,
  type SampleDriverOptions,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { makeFolder } from './csi-folder.ts';
import { startTestGateway } from './csi-gateway.ts';
import { DRIVER, runMain, type Running } from './process-bed.ts';
import { assertNothingDenied, redisUsers, urlOf } from './redis-users.ts';
import { startTestRedis, type TestRedis } from './redis.ts';
import { openSandboxCluster, type SandboxCluster } from './sandbox-cluster.ts';

/** Label of a node, and key of the driver's topology. */
export const NODE_KEY = 'topology.sample.example/node';
const SERVICE = { namespace: 'default', name: 'gateways' };

export type BedNode = Pick<SampleDriverOptions, 'capacityBytes' | 'onCall' | 'delayMs'> & {
  readonly name: string;
  /** Default: the driver has topology by NODE_KEY. */
  readonly hasTopology?: boolean;
};

/** Redis with the users of k8s/redis, a cluster with a volume binder, and nodes with a driver and a
 * gateway each. The test starts ingest and jobs. */
export class NodeBed {
  readonly redis: TestRedis;
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  /** By node. */
  readonly drivers = new Map<string, SampleDriver>();
  readonly #closers: Closers;
  readonly #folder: Awaited<ReturnType<typeof makeFolder>>;
  readonly #addresses = new Map<string, { readonly host: string; readonly port: number }>();
  /** Of ingest and jobs. */
  readonly #env: Host['env'];

  private constructor(parts: {
    readonly redis: TestRedis;
    readonly cluster: SandboxCluster;
    readonly kube: KubeClient;
    readonly closers: Closers;
    readonly folder: Awaited<ReturnType<typeof makeFolder>>;
    readonly env: Host['env'];
  }) {
    this.redis = parts.redis;
    this.cluster = parts.cluster;
    this.kube = parts.kube;
    this.#closers = parts.closers;
    this.#folder = parts.folder;
    this.#env = parts.env;
  }

  static async open(given: readonly BedNode[], env: Host['env'] = {}): Promise<NodeBed> {
    const closers = new Closers();
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    const redis = await startTestRedis({ settings: redisUsers() });
    closers.add('Redis', () => redis.close());
    closers.add('least rights', () => assertNothingDenied(redis.redis));
    const cluster = await openSandboxCluster();
    closers.add('cluster', () => cluster.close());
    const binder = startBinder({ operations: cluster.api.operations, log: silentLog });
    closers.add('binder', () => binder.close());
    const kube = await cluster.client();
    const bed = new NodeBed({ redis, cluster, kube, closers, folder, env });
    for (const node of given) await bed.addNode(node);
    return bed;
  }

  /** Adds a Node, a CSINode, a driver and a gateway. */
  async addNode({ name, hasTopology = true, ...options }: BedNode): Promise<void> {
    const driver = await startSampleDriver({
      socket: this.#folder.file(`${name}.sock`),
      dataDir: this.#folder.file(`${name}-volumes`),
      nodeId: name,
      ...(hasTopology ? { topology: { [NODE_KEY]: name } } : {}),
      ...options,
    });
    this.drivers.set(name, driver);
    this.#closers.add(`driver ${name}`, () => driver.close());
    const gateway = await startTestGateway(this.#folder, {
      driver: { kind: 'unix', path: driver.socket },
      listen: { kind: 'tcp', host: '127.0.0.1', port: 0 },
      probeTimeoutMs: 5_000,
      node: name,
    });
    this.#closers.add(`gateway ${name}`, () => gateway.close());
    const { address } = gateway.gateway;
    assert.ok(address.kind === 'tcp');
    this.#addresses.set(name, address);
    await this.createNode(name);
    await this.setGateway(name, true);
  }

  /** Creates the Node and its CSINode. */
  async createNode(name: string): Promise<void> {
    const labels = { [NODE_KEY]: name };
    await this.kube.create<KubeObject>(nodes, undefined, {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name, labels },
    });
    const driver = { name: DRIVER, nodeID: name, topologyKeys: [NODE_KEY] };
    await this.kube.create<KubeObject>(csiNodes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'CSINode',
      metadata: { name },
      spec: { drivers: [driver] },
    });
  }

  /** Deletes the Node and its CSINode, as when a machine is taken away for good. */
  async deleteNode(name: string): Promise<void> {
    await this.kube.delete(nodes, { name });
    await this.kube.delete(csiNodes, { name });
  }

  /** Writes the EndpointSlice of a node's gateway, as when its pod becomes ready, or deletes it. */
  async setGateway(node: string, isReady: boolean): Promise<void> {
    const ref = { namespace: SERVICE.namespace, name: `gateways-${node}` };
    if (!isReady) return void (await this.kube.delete(endpointSlices, ref));
    const { host = '', port = 0 } = this.#addresses.get(node) ?? {};
    await this.kube.create<KubeObject>(endpointSlices, SERVICE.namespace, {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { ...ref, labels: { 'kubernetes.io/service-name': SERVICE.name } },
      addressType: 'IPv4',
      endpoints: [{ addresses: [host], nodeName: node, conditions: { ready: true } }],
      ports: [{ name: 'gateway', port, protocol: 'TCP' }],
    });
  }

  /** Has the EndpointSlice of a node name the gateway of another one, as one that is out of date
   * does when an IP address is used again. */
  async setWrongGateway(node: string, other: string): Promise<void> {
    await this.setGateway(node, false);
    const own = this.#addresses.get(node);
    const wrong = this.#addresses.get(other);
    assert.ok(own !== undefined && wrong !== undefined);
    this.#addresses.set(node, wrong);
    await this.setGateway(node, true);
    this.#addresses.set(node, own);
  }

  startIngest(...flags: readonly string[]): Promise<Running> {
    const redis = `--redis-url=${urlOf('ingest', this.redis.url)}`;
    const argv = [redis, '--leader-election-namespace=default', ...flags];
    return this.#start('ingest', ingestMain, argv);
  }

  startJobs(...flags: readonly string[]): Promise<Running> {
    const redis = `--redis-url=${urlOf('jobs', this.redis.url)}`;
    const argv = [redis, '--retry-interval-start=50ms', '--settle-time=100ms', ...flags];
    return this.#start('jobs', jobsMain, argv);
  }

  async createClass(name: string, fields: object = {}): Promise<void> {
    await this.kube.create(classes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name },
      provisioner: DRIVER,
      ...fields,
    });
  }

  createClaim(
    name: string,
    o: {
      readonly storage?: string;
      readonly className?: string;
      readonly node?: string;
      readonly selector?: object;
    } = {},
  ): Promise<Claim> {
    const { storage = '1Mi', className = 'immediate', node, selector } = o;
    const selected = { 'volume.kubernetes.io/selected-node': node };
    return this.kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: {
        name,
        namespace: 'default',
        ...(node === undefined ? {} : { annotations: selected }),
      },
      spec: {
        storageClassName: className,
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage } },
        ...(selector === undefined ? {} : { selector }),
      },
    });
  }

  async claim(name: string): Promise<Claim | undefined> {
    return this.kube.get<Claim>(claims, { namespace: 'default', name });
  }

  async isBound(name: string): Promise<boolean> {
    return (await this.claim(name))?.status?.phase === 'Bound';
  }

  async volumes(): Promise<readonly Volume[]> {
    return (await this.kube.list<Volume>(volumes, {})).items;
  }

  /** Messages of the warnings about an object. */
  async warnings(name: string): Promise<readonly string[]> {
    const { items } = await this.kube.list<KubeObject & WarningEvent>(
      { group: '', version: 'v1', plural: 'events', kind: 'Event', namespaced: true },
      { namespace: 'default' },
    );
    return items
      .filter((event) => event.type === 'Warning' && event.involvedObject.name === name)
      .map(({ message }) => message);
  }

  /** Calls of a method that the driver of a node has got. */
  calls(node: string, method: string): number {
    return this.drivers.get(node)?.counts.get(method) ?? 0;
  }

  /** Ends everything. */
  async close(): Promise<void> {
    assert.deepEqual(await this.#closers.close(), []);
  }

  async #start(
    name: string,
    main: Parameters<typeof runMain>[0],
    flags: readonly string[],
  ): Promise<Running> {
    const argv = [
      `--kubeconfig=${this.cluster.kubeconfig}`,
      '--node-deployment',
      `--gateway-service=${SERVICE.namespace}/${SERVICE.name}`,
      '--gateway-insecure',
      '--http-endpoint=127.0.0.1:0',
      '--timeout=5s',
      '--write-allowance=2s',
      ...flags,
    ];
    const running = await runMain(main, argv, this.#env);
    this.#closers.add(name, () => running.stop());
    return running;
  }
}

interface WarningEvent {
  readonly type: string;
  readonly message: string;
  readonly involvedObject: { readonly name: string };
}

import assert from 'node:assert/strict';
import type { Claim, KubeObject, Volume } from '#src/kube/objects.ts';
import { claims, csiNodes, endpointSlices, nodes, volumes } from '#src/kube/resources.ts';
import type { Host } from '#src/runtime/process.ts';
import {
  type SampleDriver,
  type SampleDriverOptions,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { ClusterBed, openParts } from './cluster-bed.ts';
import { startTestGateway } from './csi-gateway.ts';
import { DRIVER } from './process-bed.ts';

/** Label of a node, and key of the driver's topology. */
export const NODE_KEY = 'topology.sample.example/node';
const SERVICE = { namespace: 'default', name: 'gateways' };

export type BedNode = Pick<SampleDriverOptions, 'capacityBytes' | 'onCall' | 'delayMs'> & {
  readonly name: string;
  /** Default: the driver has topology by NODE_KEY. */
  readonly hasTopology?: boolean;
};

/** A bed with nodes that have a driver and a gateway each. */
export class NodeBed extends ClusterBed {
  /** By node. */
  readonly drivers = new Map<string, SampleDriver>();
  readonly #addresses = new Map<string, { readonly host: string; readonly port: number }>();

  static async open(given: readonly BedNode[], env: Host['env'] = {}): Promise<NodeBed> {
    const flags = [
      '--node-deployment',
      `--gateway-service=${SERVICE.namespace}/${SERVICE.name}`,
      '--gateway-insecure',
      '--timeout=5s',
      '--settle-time=100ms',
    ];
    const bed = new NodeBed(await openParts(), { flags, env });
    for (const node of given) await bed.addNode(node);
    return bed;
  }

  /** Adds a Node, a CSINode, a driver and a gateway. */
  async addNode({ name, hasTopology = true, ...options }: BedNode): Promise<void> {
    const driver = await startSampleDriver({
      socket: this.folder.file(`${name}.sock`),
      dataDir: this.folder.file(`${name}-volumes`),
      nodeId: name,
      ...(hasTopology ? { topology: { [NODE_KEY]: name } } : {}),
      ...options,
    });
    this.drivers.set(name, driver);
    this.closers.add(`driver ${name}`, () => driver.close());
    const gateway = await startTestGateway(this.folder, {
      driver: { kind: 'unix', path: driver.socket },
      listen: { kind: 'tcp', host: '127.0.0.1', port: 0 },
      probeTimeoutMs: 5_000,
      node: name,
    });
    this.closers.add(`gateway ${name}`, () => gateway.close());
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

  override createClass(name: string, fields: object = {}): Promise<void> {
    return super.createClass(name, { provisioner: DRIVER, ...fields });
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
    const { storage = '1Mi', className: storageClassName = 'immediate', node, ...selector } = o;
    const spec = { storageClassName, resources: { requests: { storage } }, ...selector };
    const selected = node === undefined ? {} : { 'volume.kubernetes.io/selected-node': node };
    return this.createClaimOf(name, spec, selected);
  }

  async claim(name: string): Promise<Claim | undefined> {
    return this.kube.get<Claim>(claims, { namespace: 'default', name });
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
}

interface WarningEvent {
  readonly type: string;
  readonly message: string;
  readonly involvedObject: { readonly name: string };
}

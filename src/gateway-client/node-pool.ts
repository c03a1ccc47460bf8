import { Code, createNotSentError, NODE_METADATA } from '../csi/status.ts';
import { UsageError } from '../runtime/flags.ts';
import type { CsiClient } from './client.ts';
import { type EndpointClientOptions, EndpointClients, type Endpoints } from './endpoints.ts';
import { describeSkew } from './gateway-clock.ts';
import { nodeAddress, nodeOf } from './gateway-address.ts';
import { callsOf, type GatewayClient, type GatewayPool } from './pool.ts';

/** The gateways of the nodes. Their addresses are those of gateway-address.ts. */
export interface NodeGatewayPool extends GatewayPool {
  /** Whether the gateway of a node can be called now, as far as is known. */
  isReady(node: string): boolean;
  /** The nodes whose gateway can be called now, by name. */
  readyNodes(): readonly string[];
  /** Calls the listener with each node whose gateway comes, goes, or listens elsewhere. */
  onChange(listener: (node: string) => void): void;
  /** Number of clients, each with a connection of its own once it was called. */
  readonly connections: number;
}

/** Gateways that are asked in turn what each of them answers alike, until one responds. */
const MOST_ASKED = 5;

/** A pool without connections; each is opened by the first call, and closed when it is idle or too
 * many others are open. */
export function openNodeGatewayPool(options: EndpointClientOptions): NodeGatewayPool {
  return new NodePool(options);
}

class NodePool implements NodeGatewayPool {
  /** Only for drivers whose gateways replace each other. */
  readonly gateways: readonly GatewayClient[] = [];
  readonly soleAddress = '';
  readonly calls = callsOf((address, method) => this.#named(address, method));
  readonly anyReplica: GatewayPool['anyReplica'] = {
    listVolumes: (request, settings) => this.#listVolumes(request, settings),
  };
  readonly #endpoints: Endpoints;
  readonly #clients: EndpointClients;
  #preferred: string | undefined;
  /** Where among the other nodes the next inOrder() begins. */
  #nextAsked = 0;

  constructor(options: EndpointClientOptions) {
    this.#endpoints = options.endpoints;
    this.#clients = new EndpointClients(options, (node) => ({ [NODE_METADATA]: node }));
  }

  get connections(): number {
    return this.#clients.connections;
  }

  get skew(): string | undefined {
    return describeSkew(
      this.#clients.clocks().map(([node, aheadMs]) => ({ address: nodeAddress(node), aheadMs })),
    );
  }

  isReady(node: string): boolean {
    return this.#endpoints.addressOf(node) !== undefined;
  }

  readyNodes(): readonly string[] {
    return [...this.#endpoints.names()].sort();
  }

  onChange(listener: (node: string) => void): void {
    this.#endpoints.onChange(listener);
  }

  /** The preferred one, and some others, which are not the same each time: those that were asked
   * before may all be down. */
  inOrder(): readonly GatewayClient[] {
    const others = this.readyNodes().filter((node) => node !== this.#preferred);
    const at = others.length === 0 ? 0 : this.#nextAsked % others.length;
    this.#nextAsked = at + MOST_ASKED;
    const preferred = this.#preferred;
    return [
      ...(preferred !== undefined && this.isReady(preferred) ? [preferred] : []),
      ...[...others.slice(at), ...others.slice(0, at)].slice(0, MOST_ASKED),
    ].map((node) => this.#gatewayOf(node));
  }

  prefer(address: string): void {
    this.#preferred = nodeOf(address) ?? this.#preferred;
  }

  close(): void {
    this.#clients.close();
  }

  #gatewayOf(node: string): GatewayClient {
    const clientOf = (): CsiClient => this.#clientOf(node, 'GetPluginInfo');
    return {
      address: nodeAddress(node),
      // A getter, so that no connection is opened before the gateway's turn.
      get client() {
        return clientOf();
      },
    };
  }

  /** The client for the address in a volume record. */
  #named(address: string, method: string): CsiClient {
    const node = nodeOf(address);
    if (node === undefined)
      throw notSent(
        method,
        `${address === '' ? 'the call' : address} names no node: it is of a time before ` +
          '--node-deployment; start jobs without that flag until the record is closed, or drop ' +
          'the record by sutler forget',
      );
    return this.#clientOf(node, method);
  }

  #clientOf(node: string, method: string): CsiClient {
    const client = this.#clients.get(node);
    if (client === undefined) throw notSent(method, `no gateway is ready on node ${node}`);
    return client;
  }

  /** Lists the volumes of one node after the other: each driver knows those of its own node. */
  async #listVolumes(
    ...[request, settings]: Parameters<CsiClient['listVolumes']>
  ): ReturnType<CsiClient['listVolumes']> {
    const given = request instanceof Uint8Array ? {} : request;
    const [from = '', startingToken = ''] = (given.startingToken ?? '').split(SEPARATOR);
    const nodes = this.readyNodes();
    const node = nodes.find((each) => each >= from);
    if (node === undefined) throw notSent('ListVolumes', 'no node has a gateway that is ready');
    const page = { ...given, startingToken: node === from ? startingToken : '' };
    const answer = await this.#clientOf(node, 'ListVolumes').listVolumes(page, settings);
    const next = nodes.find((each) => each > node);
    if (answer.nextToken !== '') answer.nextToken = `${node}${SEPARATOR}${answer.nextToken}`;
    else if (next !== undefined) answer.nextToken = `${next}${SEPARATOR}`;
    return answer;
  }
}

/** Between the node and the driver's token in a token of #listVolumes. */
const SEPARATOR = '\n';

/** Unavailable: only the calls of one node fail. */
function notSent(method: string, details: string): Error {
  const service = method === 'GetPluginInfo' ? 'Identity' : 'Controller';
  return createNotSentError({
    method: `/csi.v1.${service}/${method}`,
    code: Code.Unavailable,
    details,
  });
}

/** Refuses flags by which no gateway of a node can be found or may be called.
 * @throws UsageError */
export function checkNodeFlags(flags: {
  readonly gatewayService: string;
  readonly nodeGateway: readonly string[];
}): void {
  const hasService = flags.gatewayService !== '';
  if (hasService !== flags.nodeGateway.length > 0) return;
  throw new UsageError(
    hasService
      ? '--gateway-service and --node-gateway: give one of them'
      : '--node-deployment: give --gateway-service=NAMESPACE/NAME, the headless Service of the ' +
          'nodes’ gateways',
  );
}

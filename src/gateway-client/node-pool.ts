// The gateways of a driver that runs on each node: a client for each that is called. Builds on
// client.ts, node-endpoints.ts and pool.ts.
import { Code, createNotSentError, NODE_METADATA } from '../csi/status.ts';
import { type Clock, systemClock } from '../runtime/clock.ts';
import { formatAddress } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';
import { CsiClient } from './client.ts';
import type { GatewaySecurity } from './credentials.ts';
import { nodeAddress, nodeOf } from './node-address.ts';
import type { NodeEndpoints } from './node-endpoints.ts';
import type { ControllerCallSettings, GatewayClient, GatewayPool } from './pool.ts';

/** The gateways of the nodes. Their addresses are those of node-address.ts. */
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

export interface NodePoolOptions {
  readonly endpoints: NodeEndpoints;
  readonly security: Pick<GatewaySecurity, 'tls'>;
  /** As in CsiClientOptions. */
  readonly showsShortSecrets?: boolean;
  /** How long a connection stays open without a call. */
  readonly idleMs?: number;
  readonly clock?: Clock;
  readonly log: Logger;
}

/** Longer than the pauses between the runs of a busy node, so that it is not connected to anew for
 * each volume. */
const IDLE_MS = 30_000;
/** Connections that are kept open, as long as so many suffice for the calls under way. Each takes
 * about 110 KiB, most of it outside the heap. */
const MOST_OPEN = 128;
/** Gateways that are asked in turn what each of them answers alike, until one responds. */
const MOST_ASKED = 5;

/** A pool without connections; each is opened by the first call, and closed when it is idle or too
 * many others are open. */
export function openNodeGatewayPool(options: NodePoolOptions): NodeGatewayPool {
  return new NodePool(options);
}

interface Held {
  /** Where its gateway listens. */
  readonly target: string;
  readonly client: CsiClient;
}

class NodePool implements NodeGatewayPool {
  /** Only for drivers whose gateways replace each other. */
  readonly gateways: readonly GatewayClient[] = [];
  readonly soleAddress = '';
  readonly calls: GatewayPool['calls'] = {
    createVolume: async (request, settings) =>
      this.#named(settings.gateway, 'CreateVolume').createVolume(request, forNode(settings)),
    deleteVolume: async (request, settings) =>
      this.#named(settings.gateway, 'DeleteVolume').deleteVolume(request, forNode(settings)),
    getCapacity: async (request, settings) =>
      this.#named(settings.gateway, 'GetCapacity').getCapacity(request, forNode(settings)),
  };
  readonly anyReplica: GatewayPool['anyReplica'] = {
    listVolumes: (request, settings) => this.#listVolumes(request, settings),
  };
  readonly #options: NodePoolOptions;
  readonly #byNode = new Map<string, Held>();
  /** Clients of gateways that are gone, which are closed when their calls have ended. */
  readonly #retired = new Set<CsiClient>();
  readonly #timer: NodeJS.Timeout;
  #preferred: string | undefined;
  /** Where among the other nodes the next inOrder() begins. */
  #nextAsked = 0;

  constructor(options: NodePoolOptions) {
    this.#options = options;
    const { idleMs = IDLE_MS, endpoints } = options;
    this.#timer = setInterval(() => this.#closeIdle(idleMs), Math.max(10, idleMs / 4));
    endpoints.onChange((node) => this.#forgetOutdated(node));
  }

  get connections(): number {
    return this.#byNode.size + this.#retired.size;
  }

  isReady(node: string): boolean {
    return this.#options.endpoints.addressOf(node) !== undefined;
  }

  readyNodes(): readonly string[] {
    return [...this.#options.endpoints.nodes()].sort();
  }

  onChange(listener: (node: string) => void): void {
    this.#options.endpoints.onChange(listener);
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
    clearInterval(this.#timer);
    for (const { client } of this.#byNode.values()) client.close();
    for (const client of this.#retired) client.close();
    this.#byNode.clear();
    this.#retired.clear();
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
    const { endpoints, security, showsShortSecrets = false, clock = systemClock } = this.#options;
    const address = endpoints.addressOf(node);
    if (address === undefined) throw notSent(method, `no gateway is ready on node ${node}`);
    const target = formatAddress(address);
    const held = this.#byNode.get(node);
    this.#byNode.delete(node);
    if (held?.target === target) {
      // The least recently used come first.
      this.#byNode.set(node, held);
      return held.client;
    }
    if (held !== undefined) this.#retired.add(held.client);
    if (this.#byNode.size >= MOST_OPEN) this.#closeLeastUsed();
    const { log } = this.#options;
    const tls = security.tls && {
      ...security.tls,
      serverName: security.tls.serverName === '' ? endpoints.serverName : security.tls.serverName,
    };
    const client = new CsiClient({ address, log, tls, showsShortSecrets, clock });
    this.#byNode.set(node, { target, client });
    return client;
  }

  #forgetOutdated(node: string): void {
    const held = this.#byNode.get(node);
    const address = this.#options.endpoints.addressOf(node);
    if (held === undefined || (address && formatAddress(address) === held.target)) return;
    this.#byNode.delete(node);
    this.#retired.add(held.client);
  }

  #closeLeastUsed(): void {
    for (const [node, { client }] of this.#byNode) {
      if (client.idleMs === 0) continue;
      this.#byNode.delete(node);
      return client.close();
    }
  }

  #closeIdle(idleMs: number): void {
    for (const [node, { client }] of this.#byNode)
      if (client.idleMs > idleMs) {
        this.#byNode.delete(node);
        client.close();
      }
    for (const client of this.#retired)
      if (client.idleMs > 0) {
        this.#retired.delete(client);
        client.close();
      }
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

/** Adds the node, by which the gateway knows whether it is the one that is meant. */
function forNode(settings: ControllerCallSettings): ControllerCallSettings {
  const metadata = { ...settings.metadata, [NODE_METADATA]: nodeOf(settings.gateway) ?? '' };
  return { ...settings, metadata };
}

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

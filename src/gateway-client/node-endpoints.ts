// Where the gateway of each node listens, with --node-deployment. Builds on nothing in this folder.
import type { KubeClient } from '../kube/client.ts';
import { SERVICE_NAME } from '../kube/keys.ts';
import type { EndpointSlice } from '../kube/objects.ts';
import { startReflector, type Reflector, type Transformed } from '../kube/reflector.ts';
import { endpointSlices } from '../kube/resources.ts';
import { type Address, formatAddress, parseAddress } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';

/** Where the gateways of nodes listen now. */
export interface NodeEndpoints {
  /** undefined: no gateway of the node can be called. */
  addressOf(node: string): Address | undefined;
  /** The nodes whose gateway can be called. */
  nodes(): Iterable<string>;
  /** Calls the listener with each node whose gateway can be called from now on, or can't any more,
   * or listens elsewhere. */
  onChange(listener: (node: string) => void): void;
  /** The name in the gateways' certificates unless a flag names another; '' for their host. */
  readonly serverName: string;
  /** Why this may be out of date, in one line; undefined while it is not. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

/** A Service by its namespace and name. */
export interface ServiceRef {
  readonly namespace: string;
  readonly name: string;
}

/** Parses --gateway-service.
 * @throws UsageError */
export function parseService(text: string): ServiceRef {
  const [, namespace, name] = /^([a-z0-9.-]+)\/([a-z0-9.-]+)$/.exec(text) ?? [];
  if (namespace === undefined || name === undefined)
    throw new UsageError(
      `--gateway-service: "${text}" does not name a Service; write NAMESPACE/NAME`,
    );
  return { namespace, name };
}

/** Parses --node-gateway.
 * @throws UsageError */
export function parseNodeGateways(texts: readonly string[]): ReadonlyMap<string, Address> {
  const addresses = new Map<string, Address>();
  for (const text of texts) {
    const [, node, address] = /^([^=]+)=(.+)$/.exec(text) ?? [];
    if (node === undefined || address === undefined)
      throw new UsageError(`--node-gateway: "${text}" is not NODE=ADDRESS`);
    if (addresses.has(node))
      throw new UsageError(`--node-gateway: node ${node} has two addresses; give it one`);
    addresses.set(node, parseAddress('node-gateway', address));
  }
  return addresses;
}

/** Gateways that flags name. Whether they can be called is seen when they are. */
export function fixedNodeEndpoints(addresses: ReadonlyMap<string, Address>): NodeEndpoints {
  return {
    addressOf: (node) => addresses.get(node),
    nodes: () => addresses.keys(),
    onChange: () => undefined,
    serverName: '',
    trouble: undefined,
    stop: () => Promise.resolve(),
  };
}

/** Lists the nodes whose gateway behind a headless Service can be called.
 * @throws KubeError */
export async function listReadyNodes(
  client: Pick<KubeClient, 'list'>,
  { namespace, name }: ServiceRef,
): Promise<readonly string[]> {
  const labelSelector = `${SERVICE_NAME}=${name}`;
  const { items } = await client.list<EndpointSlice>(endpointSlices, { namespace, labelSelector });
  return items.flatMap((slice) => toReadyGateways(slice).gateways.map(({ node }) => node));
}

/** What is kept of an EndpointSlice: the address of each gateway that is ready. */
interface ReadyGateways extends Transformed {
  readonly gateways: readonly { readonly node: string; readonly address: Address }[];
}

/** The gateways behind a headless Service. Watches its EndpointSlices. */
export function watchNodeEndpoints(options: {
  readonly client: KubeClient;
  readonly service: ServiceRef;
  readonly log: Logger;
  readonly metrics?: Registry;
}): NodeEndpoints {
  const { service, client, log, metrics } = options;
  const listeners = new Listeners<string>();
  let addresses: ReadonlyMap<string, Address> = new Map();
  const slices: Reflector<ReadyGateways> = startReflector<ReadyGateways>({
    client,
    log,
    ...(metrics === undefined ? {} : { metrics }),
    resource: endpointSlices,
    namespace: service.namespace,
    labelSelector: `${SERVICE_NAME}=${service.name}`,
    transform: (raw) => toReadyGateways(raw as EndpointSlice),
    onChange() {
      const before = addresses;
      addresses = addressesIn(slices.list());
      for (const node of changedNodes(before, addresses)) listeners.notify(node);
    },
  });
  return {
    addressOf: (node) => addresses.get(node),
    nodes: () => addresses.keys(),
    onChange: (listener) => listeners.subscribe(listener),
    serverName: `${service.name}.${service.namespace}.svc`,
    get trouble() {
      return slices.trouble;
    },
    stop: () => slices.stop(),
  };
}

/** Name of the gateway's port in the Service, where it has several. */
const PORT_NAME = 'gateway';

function toReadyGateways({ metadata, endpoints, ports }: EndpointSlice): ReadyGateways {
  const { name, namespace = '', uid, resourceVersion } = metadata;
  const chosen = ports?.find((each) => each.name === PORT_NAME) ?? ports?.[0];
  const port = chosen?.port;
  // An endpoint without a condition counts as ready, and a terminating one never does.
  const ready = port === undefined ? [] : (endpoints ?? []).filter((each) => isReady(each));
  return {
    metadata: { name, namespace, uid, resourceVersion },
    gateways: ready.flatMap(({ nodeName, addresses: [host] }) =>
      nodeName === undefined || host === undefined
        ? []
        : [{ node: nodeName, address: { kind: 'tcp', host, port: Number(port) } as const }],
    ),
  };
}

type Endpoint = NonNullable<EndpointSlice['endpoints']>[number];

function isReady({ conditions }: Endpoint): boolean {
  return (conditions?.ready ?? true) && conditions?.terminating !== true;
}

/** While a pod replaces another one on its node, both may be ready for a moment. All processes then
 * take the same one. */
function addressesIn(slices: Iterable<ReadyGateways>): ReadonlyMap<string, Address> {
  const addresses = new Map<string, Address>();
  for (const { gateways } of slices)
    for (const { node, address } of gateways) {
      const other = addresses.get(node);
      if (other === undefined || formatAddress(address) < formatAddress(other))
        addresses.set(node, address);
    }
  return addresses;
}

function changedNodes(
  before: ReadonlyMap<string, Address>,
  now: ReadonlyMap<string, Address>,
): readonly string[] {
  const textOf = (address: Address | undefined): string =>
    address === undefined ? '' : formatAddress(address);
  return [...new Set([...before.keys(), ...now.keys()])].filter(
    (node) => textOf(before.get(node)) !== textOf(now.get(node)),
  );
}

// Where the gateways behind a Service listen. Builds on pod-address.ts.
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
import { podAddress } from './pod-address.ts';

/** Where gateways listen now, each under its own name. */
export interface Endpoints {
  /** undefined: there is no such gateway now. */
  addressOf(name: string): Address | undefined;
  names(): Iterable<string>;
  /** Calls the listener with the name of each gateway that comes, goes, or listens elsewhere. */
  onChange(listener: (name: string) => void): void;
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
export function fixedNodeEndpoints(addresses: ReadonlyMap<string, Address>): Endpoints {
  return {
    addressOf: (node) => addresses.get(node),
    names: () => addresses.keys(),
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
  return items.flatMap((slice) => toGateways(slice, readyNode).gateways.map((each) => each.name));
}

type Endpoint = NonNullable<EndpointSlice['endpoints']>[number];

/** The name under which a gateway behind a Service is called; undefined for none. */
type NameEndpoint = (endpoint: Endpoint) => string | undefined;

/** By node, with --node-deployment: while its gateway is ready. An endpoint without a condition
 * counts as ready, and a terminating one never does. */
export const readyNode: NameEndpoint = ({ conditions, nodeName }) =>
  (conditions?.ready ?? true) && conditions?.terminating !== true ? nodeName : undefined;

/** By pod, ready or not: the leading ingest probes each, and one that drains says so. */
export const podOrHost: NameEndpoint = ({ addresses: [host = ''], targetRef }) => {
  const { kind, name, uid } = targetRef ?? {};
  return kind === 'Pod' && name && uid ? podAddress(name, uid) : host;
};

/** What is kept of an EndpointSlice. */
interface Gateways extends Transformed {
  readonly gateways: readonly { readonly name: string; readonly address: Address }[];
}

/** The gateways behind a headless Service. Watches its EndpointSlices. */
export function watchEndpoints(options: {
  readonly client: KubeClient;
  readonly service: ServiceRef;
  readonly nameOf: NameEndpoint;
  readonly log: Logger;
  readonly metrics?: Registry;
}): Endpoints {
  const { service, client, nameOf, log, metrics } = options;
  const listeners = new Listeners<string>();
  let addresses: ReadonlyMap<string, Address> = new Map();
  const slices: Reflector<Gateways> = startReflector<Gateways>({
    client,
    log,
    ...(metrics === undefined ? {} : { metrics }),
    resource: endpointSlices,
    namespace: service.namespace,
    labelSelector: `${SERVICE_NAME}=${service.name}`,
    transform: (raw) => toGateways(raw as EndpointSlice, nameOf),
    onChange() {
      const before = addresses;
      addresses = addressesIn(slices.list());
      for (const name of changedNames(before, addresses)) listeners.notify(name);
    },
  });
  return {
    addressOf: (name) => addresses.get(name),
    // Not before all slices are known, so that none seems to be missing.
    names: () => (slices.hasSynced ? addresses.keys() : []),
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

function toGateways({ metadata, endpoints, ports }: EndpointSlice, nameOf: NameEndpoint): Gateways {
  const { name, namespace = '', uid, resourceVersion } = metadata;
  const { port } = ports?.find((each) => each.name === PORT_NAME) ?? ports?.[0] ?? {};
  const kept = { metadata: { name, namespace, uid, resourceVersion } };
  if (port === undefined) return { ...kept, gateways: [] };
  return {
    ...kept,
    gateways: (endpoints ?? []).flatMap((endpoint) => {
      const [host] = endpoint.addresses;
      const named = nameOf(endpoint);
      if (!named || host === undefined) return [];
      return [{ name: named, address: { kind: 'tcp', host, port } as const }];
    }),
  };
}

/** While a pod replaces another one on its node, both may be ready for a moment, and a pod may have
 * an address of each IP family. All processes then take the same one. */
function addressesIn(slices: Iterable<Gateways>): ReadonlyMap<string, Address> {
  const addresses = new Map<string, Address>();
  for (const { gateways } of slices)
    for (const { name, address } of gateways) {
      const other = addresses.get(name);
      if (other === undefined || formatAddress(address) < formatAddress(other))
        addresses.set(name, address);
    }
  return addresses;
}

function changedNames(
  before: ReadonlyMap<string, Address>,
  now: ReadonlyMap<string, Address>,
): readonly string[] {
  const textOf = (address: Address | undefined): string =>
    address === undefined ? '' : formatAddress(address);
  return [...new Set([...before.keys(), ...now.keys()])].filter(
    (name) => textOf(before.get(name)) !== textOf(now.get(name)),
  );
}

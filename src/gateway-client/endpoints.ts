import type { KubeClient } from '../kube/client.ts';
import { SERVICE_NAME } from '../kube/keys.ts';
import type { EndpointSlice } from '../kube/objects.ts';
import { type Reflector, startReflector, type Transformed } from '../kube/reflector.ts';
import { endpointSlices } from '../kube/resources.ts';
import { type Address, formatAddress } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';
import { CsiClient, type CsiClientOptions } from './client.ts';
import type { GatewaySecurity } from './credentials.ts';
import { podAddress } from './gateway-address.ts';

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

type Endpoint = NonNullable<EndpointSlice['endpoints']>[number];

/** The name under which a gateway behind a Service is called: that of its pod, ready or not. The
 * leading ingest probes each, and one that drains says so. */
function nameOf({ addresses: [host = ''], targetRef }: Endpoint): string {
  const { kind, name, uid } = targetRef ?? {};
  return kind === 'Pod' && name && uid ? podAddress(name, uid) : host;
}

/** What is kept of an EndpointSlice. */
interface Gateways extends Transformed {
  readonly gateways: readonly { readonly name: string; readonly address: Address }[];
}

/** The gateways behind a headless Service. Watches its EndpointSlices. */
export function watchEndpoints(options: {
  readonly client: KubeClient;
  readonly service: ServiceRef;
  readonly log: Logger;
  readonly metrics?: Registry;
}): Endpoints {
  const { service, client, log, metrics } = options;
  const listeners = new Listeners<string>();
  let addresses: ReadonlyMap<string, Address> = new Map();
  const slices: Reflector<Gateways> = startReflector<Gateways>({
    client,
    log,
    ...(metrics === undefined ? {} : { metrics }),
    resource: endpointSlices,
    namespace: service.namespace,
    labelSelector: `${SERVICE_NAME}=${service.name}`,
    transform: (raw) => toGateways(raw as EndpointSlice),
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

function toGateways({ metadata, endpoints, ports }: EndpointSlice): Gateways {
  const { name, namespace = '', uid, resourceVersion } = metadata;
  const { port } = ports?.find((each) => each.name === PORT_NAME) ?? ports?.[0] ?? {};
  const kept = { metadata: { name, namespace, uid, resourceVersion } };
  if (port === undefined) return { ...kept, gateways: [] };
  return {
    ...kept,
    gateways: (endpoints ?? []).flatMap((endpoint) => {
      const [host] = endpoint.addresses;
      if (host === undefined) return [];
      return [{ name: nameOf(endpoint), address: { kind: 'tcp', host, port } as const }];
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

export interface EndpointClientOptions {
  readonly endpoints: Endpoints;
  readonly security: Pick<GatewaySecurity, 'tls'>;
  readonly showsShortSecrets?: boolean;
  /** How long a connection stays open without a call. */
  readonly idleMs?: number;
  readonly log: Logger;
}

/** Longer than the pauses between the runs of a busy node, so that it is not connected to anew for
 * each volume. */
const IDLE_MS = 30_000;
/** Connections that are kept open, as long as so many suffice for the calls under way. Each takes
 * about 110 KiB, most of it outside the heap. */
const MOST_OPEN = 128;

/** The clients of gateways that come and go. A connection is opened by the first call, and closed
 * when it is idle or too many others are open. */
export class EndpointClients {
  readonly #options: EndpointClientOptions;
  readonly #metadataFor: (name: string) => CsiClientOptions['metadata'];
  /** By the gateway's name, with where it listens. The least recently used come first. */
  readonly #held = new Map<string, { readonly target: string; readonly client: CsiClient }>();
  /** Clients of gateways that are gone, which are closed when their calls have ended. */
  readonly #retired = new Set<CsiClient>();
  readonly #timer: NodeJS.Timeout;

  /** @param metadataFor  by which a gateway sees whether it is the one that is meant */
  constructor(
    options: EndpointClientOptions,
    metadataFor: (name: string) => CsiClientOptions['metadata'],
  ) {
    this.#options = options;
    this.#metadataFor = metadataFor;
    const { idleMs = IDLE_MS, endpoints } = options;
    this.#timer = setInterval(() => this.#closeIdle(idleMs), Math.max(10, idleMs / 4));
    endpoints.onChange((name) => this.#forgetOutdated(name));
  }

  /** Number of clients, each with a connection of its own once it was called. */
  get connections(): number {
    return this.#held.size + this.#retired.size;
  }

  /** How far the clock of each gateway is ahead of this process's, by the gateway's name; of those
   * that have a client. */
  clocks(): readonly (readonly [string, number | undefined])[] {
    return [...this.#held].map(([name, { client }]) => [name, client.aheadMs]);
  }

  /** The client of a gateway; undefined if there is no such gateway now. */
  get(name: string): CsiClient | undefined {
    const { endpoints, security, showsShortSecrets = false } = this.#options;
    const address = endpoints.addressOf(name);
    if (address === undefined) return undefined;
    const target = formatAddress(address);
    const held = this.#held.get(name);
    this.#held.delete(name);
    if (held?.target === target) {
      this.#held.set(name, held);
      return held.client;
    }
    if (held !== undefined) this.#retired.add(held.client);
    if (this.#held.size >= MOST_OPEN) this.#closeLeastUsed();
    const { log } = this.#options;
    const tls = security.tls && {
      ...security.tls,
      serverName: security.tls.serverName === '' ? endpoints.serverName : security.tls.serverName,
    };
    const metadata = this.#metadataFor(name) ?? {};
    const client = new CsiClient({ address, log, tls, showsShortSecrets, metadata });
    this.#held.set(name, { target, client });
    return client;
  }

  close(): void {
    clearInterval(this.#timer);
    for (const { client } of this.#held.values()) client.close();
    for (const client of this.#retired) client.close();
    this.#held.clear();
    this.#retired.clear();
  }

  #forgetOutdated(name: string): void {
    const held = this.#held.get(name);
    const address = this.#options.endpoints.addressOf(name);
    if (held === undefined || (address && formatAddress(address) === held.target)) return;
    this.#held.delete(name);
    this.#retired.add(held.client);
  }

  #closeLeastUsed(): void {
    for (const [name, { client }] of this.#held) {
      if (client.idleMs === 0) continue;
      this.#held.delete(name);
      return client.close();
    }
  }

  #closeIdle(idleMs: number): void {
    for (const [name, { client }] of this.#held)
      if (client.idleMs > idleMs) {
        this.#held.delete(name);
        client.close();
      }
    for (const client of this.#retired)
      if (client.idleMs > 0) {
        this.#retired.delete(client);
        client.close();
      }
  }
}

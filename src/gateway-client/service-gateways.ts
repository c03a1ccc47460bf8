import { POD_METADATA } from '../csi/status.ts';
import type { KubeClient } from '../kube/client.ts';
import { SERVICE_NAME } from '../kube/keys.ts';
import type { EndpointSlice } from '../kube/objects.ts';
import { type Reflector, startReflector, type Transformed } from '../kube/reflector.ts';
import { endpointSlices } from '../kube/resources.ts';
import { type Address, formatAddress } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';
import { CsiClient } from './client.ts';
import type { ClientTls } from './credentials.ts';
import type { GatewayClient } from './pool.ts';

/** A Service by its namespace and name. */
export interface ServiceRef {
  readonly namespace: string;
  readonly name: string;
}

/** What to check if a gateway is missing. */
export const SERVICE_REMEDY = '--gateway-service, and the pods of that Service';

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

/** Where a gateway behind a Service listens. */
interface Place {
  /** Identifies the gateway, ready or not: the leader probes each, and a draining gateway says so.
   * No other pod ever gets this name, even with equal pod name or IP address. Without a pod, the
   * host. */
  readonly name: string;
  /** UID of its pod; '' if there is none. */
  readonly pod: string;
  readonly address: Address;
}

/** The part of an EndpointSlice that is kept. */
interface Places extends Transformed {
  readonly places: readonly Place[];
}

export interface ServiceGatewaysOptions {
  readonly kube: KubeClient;
  readonly service: ServiceRef;
  readonly tls: ClientTls | undefined;
  readonly showsShortSecrets: boolean;
  readonly log: Logger;
  readonly metrics?: Registry | undefined;
}

/** The gateways behind a headless Service, one in each pod of its EndpointSlices. Clients use the
 * pod's IP address. A gateway refuses a call for another pod that had this address before. */
export class ServiceGateways {
  readonly #options: ServiceGatewaysOptions;
  readonly #slices: Reflector<Places>;
  readonly #clients = new Map<string, { readonly target: string; readonly client: CsiClient }>();

  constructor(options: ServiceGatewaysOptions) {
    const { kube: client, service, log, metrics } = options;
    this.#options = options;
    this.#slices = startReflector<Places>({
      client,
      log,
      ...(metrics === undefined ? {} : { metrics }),
      resource: endpointSlices,
      namespace: service.namespace,
      labelSelector: `${SERVICE_NAME}=${service.name}`,
      transform: (raw) => toPlaces(raw as EndpointSlice),
      onChange: () => this.#follow(),
    });
  }

  /** Why the list may be outdated, in one line; undefined if it is not. */
  get trouble(): string | undefined {
    return this.#slices.trouble;
  }

  /** Returns all gateways, sorted by address; none before all are known. */
  list(): readonly GatewayClient[] {
    // Earlier, some would seem to be missing.
    if (!this.#slices.hasSynced) return [];
    const gateways = [...this.#clients].map(([address, { client }]) => ({ address, client }));
    return gateways.sort((a, b) => (a.address < b.address ? -1 : 1));
  }

  async close(): Promise<void> {
    await this.#slices.stop();
    for (const { client } of this.#clients.values()) client.close();
  }

  /** Makes a client for each new gateway. If a gateway is gone or has another address, its client
   * ends after the calls under way. */
  #follow(): void {
    const places = placesIn(this.#slices.list());
    for (const [name, { target, client }] of this.#clients) {
      const place = places.get(name);
      if (place !== undefined && formatAddress(place.address) === target) continue;
      client.retire();
      this.#clients.delete(name);
    }
    for (const [name, place] of places)
      if (!this.#clients.has(name))
        this.#clients.set(name, {
          target: formatAddress(place.address),
          client: this.#clientFor(place),
        });
  }

  #clientFor({ pod, address }: Place): CsiClient {
    const { tls, service, showsShortSecrets } = this.#options;
    const serverName = tls?.serverName || `${service.name}.${service.namespace}.svc`;
    const metadata = pod === '' ? {} : { [POD_METADATA]: pod };
    return new CsiClient({
      address,
      tls: tls && { ...tls, serverName },
      showsShortSecrets,
      metadata,
    });
  }
}

/** Name of the gateway's port in a Service with several ports. */
const PORT_NAME = 'gateway';

function toPlaces({ metadata, endpoints, ports }: EndpointSlice): Places {
  const { name, namespace = '', uid, resourceVersion } = metadata;
  const { port } = ports?.find((each) => each.name === PORT_NAME) ?? ports?.[0] ?? {};
  return {
    metadata: { name, namespace, uid, resourceVersion },
    places: (endpoints ?? []).flatMap(({ addresses: [host], targetRef }) => {
      if (host === undefined || port === undefined) return [];
      const address = { kind: 'tcp', host, port } as const;
      const { kind, name: podName, uid: pod } = targetRef ?? {};
      return kind === 'Pod' && podName && pod
        ? [{ name: `pod:${podName}/${pod}`, pod, address }]
        : [{ name: host, pod: '', address }];
    }),
  };
}

/** Chooses one place per pod: a pod may briefly be in two slices, and may have an address of each
 * IP family. All processes choose the same one. */
function placesIn(slices: Iterable<Places>): ReadonlyMap<string, Place> {
  const found = new Map<string, Place>();
  for (const { places } of slices)
    for (const place of places) {
      const other = found.get(place.name);
      if (other === undefined || formatAddress(place.address) < formatAddress(other.address))
        found.set(place.name, place);
    }
  return found;
}

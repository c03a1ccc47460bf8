import { Code, createNotSentError, POD_METADATA } from '../csi/status.ts';
import { formatAddress, parseAddress } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';
import { type CallSettings, CsiClient } from './client.ts';
import { type GatewaySecurity, refusePlaintext } from './credentials.ts';
import { type EndpointClientOptions, EndpointClients } from './endpoints.ts';
import { podUidOf } from './gateway-address.ts';
import { describeSkew } from './gateway-clock.ts';

/** Settings of a call that changes a volume. */
export interface ControllerCallSettings extends CallSettings {
  /** Address of the gateway that gets the call, as marking the job returned it.
   * '' if no gateway has been named, which is allowed only with a single --gateway. */
  readonly gateway: string;
}

/** The calls that change a volume. */
export type ControllerCalls = NamedGatewayCalls<'createVolume' | 'deleteVolume'>;

/** GetCapacity, which the active gateway alone gets too: the other replicas may not know yet what
 * it has created. */
export type CapacityCalls = NamedGatewayCalls<'getCapacity'>;

type NamedGatewayCalls<Methods extends 'createVolume' | 'deleteVolume' | 'getCapacity'> = {
  readonly [Method in Methods]: (
    request: Parameters<CsiClient[Method]>[0],
    settings: ControllerCallSettings,
  ) => ReturnType<CsiClient[Method]>;
};

/** One gateway of the driver. */
export interface GatewayClient {
  /** In the notation of formatAddress, or that of gateway-address.ts; Redis stores it as well. */
  readonly address: string;
  readonly client: CsiClient;
}

/** The gateways of --gateway or --gateway-service, one for each replica of the driver. One of them
 * is preferred: the first, then the one that a call or prefer() named last. */
export interface GatewayPool {
  /** In the order of the flag; those of a Service come and go. */
  readonly gateways: readonly GatewayClient[];
  /** Address of the only gateway; '' if there are several, or may be. */
  readonly soleAddress: string;
  /** All gateways, the preferred one first: for questions that each replica answers alike. */
  inOrder(): readonly GatewayClient[];
  /** Prefers a gateway. Does nothing for an address that is not in the pool. */
  prefer(address: string): void;
  /** Go to the gateway that the settings name. If the pool does not have it, they fail with
   * Unavailable, not forwarded. */
  readonly calls: ControllerCalls & CapacityCalls;
  /** For questions that each replica answers alike: goes to the preferred gateway. */
  readonly anyReplica: Pick<CsiClient, 'listVolumes'>;
  /** Which gateway's clock is seconds off; see describeSkew. */
  readonly skew: string | undefined;
  close(): void;
}

/** Creates a client for each gateway; they connect when they are first called.
 * @throws UsageError for an empty list, an unreadable address, and one that needs TLS */
export function openGatewayPool(options: {
  readonly addresses: readonly string[];
  /** If absent: plaintext, on loopback only. */
  readonly security?: GatewaySecurity;
  readonly showsShortSecrets?: boolean;
  readonly log: Logger;
}): GatewayPool {
  const {
    log,
    showsShortSecrets = false,
    security = { tls: undefined, insecure: false },
  } = options;
  const byAddress = new Map<string, GatewayClient>();
  for (const text of options.addresses) {
    const parsed = parseAddress('gateway', text);
    refusePlaintext(parsed, security);
    const address = formatAddress(parsed);
    if (!byAddress.has(address))
      byAddress.set(address, {
        address,
        client: new CsiClient({ address: parsed, log, tls: security.tls, showsShortSecrets }),
      });
  }
  const gateways = [...byAddress.values()];
  const [first] = gateways;
  if (first === undefined)
    throw new UsageError(
      '--gateway: empty; name the csi-gateway, like unix:///run/sutler/gateway.sock',
    );
  return poolOf({
    list: () => gateways,
    find: (address) => byAddress.get(address),
    soleAddress: gateways.length === 1 ? first.address : '',
    flag: '--gateway',
    close: () => {
      for (const { client } of gateways) client.close();
    },
  });
}

/** The gateways behind a Service, one in each pod. A gateway is called by its pod's IP address, and
 * refuses a call that is for another pod. */
export function openServiceGatewayPool(options: EndpointClientOptions): GatewayPool {
  const { endpoints } = options;
  const clients = new EndpointClients(options, (address) => {
    const uid = podUidOf(address);
    return uid === undefined ? {} : { [POD_METADATA]: uid };
  });
  const find = (address: string): GatewayClient | undefined => {
    const client = clients.get(address);
    return client && { address, client };
  };
  return poolOf({
    list: () => [...endpoints.names()].sort().flatMap((address) => find(address) ?? []),
    find,
    soleAddress: '',
    flag: '--gateway-service',
    close: () => clients.close(),
  });
}

/** The calls to the gateway that their settings name.
 * @param clientFor  throws CsiError if that gateway can't be called */
function callsOf(clientFor: (address: string, method: string) => CsiClient): GatewayPool['calls'] {
  return {
    createVolume: async (request, settings) =>
      clientFor(settings.gateway, 'CreateVolume').createVolume(request, settings),
    deleteVolume: async (request, settings) =>
      clientFor(settings.gateway, 'DeleteVolume').deleteVolume(request, settings),
    getCapacity: async (request, settings) =>
      clientFor(settings.gateway, 'GetCapacity').getCapacity(request, settings),
  };
}

/** Gateways among which a pool chooses. */
interface Members extends Pick<GatewayPool, 'soleAddress' | 'close'> {
  readonly list: () => readonly GatewayClient[];
  readonly find: (address: string) => GatewayClient | undefined;
  /** That names them. */
  readonly flag: string;
}

function poolOf({ list, find, soleAddress, flag, close }: Members): GatewayPool {
  let preferred = '';
  const inOrder = (): readonly GatewayClient[] =>
    [...list()].sort((a, b) => Number(b.address === preferred) - Number(a.address === preferred));
  const fail = (method: string, details: string): never => {
    throw createNotSentError({
      method: `/csi.v1.Controller/${method}`,
      code: Code.Unavailable,
      details,
    });
  };
  const clientFor = (address: string, method: string): CsiClient => {
    const gateway = find(address === '' ? soleAddress : address);
    if (gateway === undefined)
      return fail(
        method,
        address === ''
          ? 'no leading ingest has named the active gateway yet'
          : `the active gateway ${address} is not among the gateways of this process: ` +
              `see its ${flag}, which must be the same for ingest and jobs`,
      );
    preferred = gateway.address;
    return gateway.client;
  };
  return {
    get gateways() {
      return list();
    },
    soleAddress,
    inOrder,
    prefer: (address) => (preferred = find(address)?.address ?? preferred),
    calls: callsOf(clientFor),
    anyReplica: {
      listVolumes: async (request, settings) => {
        const [gateway] = inOrder();
        return gateway === undefined
          ? fail('ListVolumes', `no gateway can be called: see ${flag}`)
          : gateway.client.listVolumes(request, settings);
      },
    },
    get skew() {
      return describeSkew(list().map(({ address, client: { aheadMs } }) => ({ address, aheadMs })));
    },
    close,
  };
}

import { formatAddress, parseAddress } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';
import { createCsiClient, type CallSettings, type CsiClient } from './client.ts';
import { refusePlaintext, type GatewaySecurity } from './credentials.ts';
import { Code, CsiError } from '../csi/status.ts';

/** A call that changes something, and the gateway that it has to go through. */
export interface ControllerCallSettings extends CallSettings {
  /** As the volume record's open named it; '' = nobody has named one, so there must be only one. */
  readonly gateway: string;
}

/** The calls that change something. */
export interface ControllerCalls {
  createVolume(
    request: Parameters<CsiClient['createVolume']>[0],
    settings: ControllerCallSettings,
  ): ReturnType<CsiClient['createVolume']>;
  deleteVolume(
    request: Parameters<CsiClient['deleteVolume']>[0],
    settings: ControllerCallSettings,
  ): ReturnType<CsiClient['deleteVolume']>;
}

/** One gateway of the driver. */
export interface Gateway {
  /** In the notation of formatAddress, which is also how Redis names it. */
  readonly address: string;
  readonly client: CsiClient;
}

/** The gateways of one driver's replicas, by --gateway. */
export interface GatewayPool {
  /** In the order of the flag. */
  readonly gateways: readonly Gateway[];
  /** The only one; '' where there are several. */
  readonly sole: string;
  /** For questions that each replica answers alike: the preferred one first. */
  inOrder(): readonly Gateway[];
  /** Is asked first from now on; an address that is not in the pool changes nothing. */
  prefer(address: string): void;
  /** Send to the gateway that the settings name, and prefer it. One that this process does not have
   * is an Unavailable that was not forwarded. */
  readonly calls: ControllerCalls;
  /** Asks the preferred one. */
  readonly asks: Pick<CsiClient, 'listVolumes'>;
  close(): void;
}

/** Makes a client for each gateway; nothing is dialled before the first call.
 * @throws UsageError for an address that can't be read or must not be called in plaintext, and for
 *   none at all */
export function openGatewayPool(o: {
  readonly addresses: readonly string[];
  /** Plaintext, loopback only, where absent. */
  readonly security?: GatewaySecurity;
  readonly log: Logger;
}): GatewayPool {
  const security = o.security ?? { tls: undefined, insecure: false };
  const tls = security.tls === undefined ? {} : { tls: security.tls };
  const byAddress = new Map<string, Gateway>();
  for (const text of o.addresses) {
    const parsed = parseAddress('gateway', text);
    refusePlaintext(parsed, security);
    const address = formatAddress(parsed);
    if (!byAddress.has(address))
      byAddress.set(address, {
        address,
        client: createCsiClient({ address: parsed, log: o.log, ...tls }),
      });
  }
  const gateways = [...byAddress.values()];
  const [first] = gateways;
  if (first === undefined)
    throw new UsageError(
      '--gateway: empty; name the csi-gateway, like unix:///run/sutler/gateway.sock',
    );
  const sole = gateways.length === 1 ? first.address : '';
  let preferred = first;
  const at = (address: string, method: string): CsiClient => {
    const found = byAddress.get(address === '' ? sole : address);
    if (found !== undefined) {
      preferred = found;
      return found.client;
    }
    const details =
      address === ''
        ? 'no leading ingest has named the active gateway yet'
        : `the active gateway ${address} is not among the gateways of this process; add it to --gateway`;
    throw new CsiError({ code: Code.Unavailable, details, method, notForwarded: true });
  };
  return {
    gateways,
    sole,
    inOrder: () => [preferred, ...gateways.filter((gateway) => gateway !== preferred)],
    prefer: (address) => (preferred = byAddress.get(address) ?? preferred),
    calls: {
      createVolume: async (request, settings) =>
        at(settings.gateway, '/csi.v1.Controller/CreateVolume').createVolume(request, settings),
      deleteVolume: async (request, settings) =>
        at(settings.gateway, '/csi.v1.Controller/DeleteVolume').deleteVolume(request, settings),
    },
    asks: { listVolumes: (request, settings) => preferred.client.listVolumes(request, settings) },
    close: () => {
      for (const { client } of gateways) client.close();
    },
  };
}

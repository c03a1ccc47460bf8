import type { CallSettings, CsiCalls } from '../csi/csi-calls.ts';
import { Code, createNotSentError } from '../csi/status.ts';

/** Settings of a call to the active gateway. */
export interface ControllerCallSettings extends CallSettings {
  /** Address of the gateway that gets the call, as marking the job returned it. '' if no gateway
   * has been named, which is allowed only if there is a single one. */
  readonly gateway: string;
}

/** One gateway of the driver, or the driver itself. */
export interface GatewayClient {
  /** As formatAddress writes it, or `pod:NAME/UID`, or `own:HOST`; Redis stores it as well. */
  readonly address: string;
  readonly client: CsiCalls;
}

/** The gateways of a driver, one for each of its replicas, as flags or a Service name them; or the
 * driver itself, if this process has its socket. Calls that change a volume, and GetCapacity, go to
 * the gateway in their settings, because other replicas may not know its volumes yet. If the pool
 * lacks that gateway, the call fails with Unavailable, not forwarded. Other questions go to the
 * preferred gateway: the first one, or the one that a call or prefer() named last. */
export class GatewayPool {
  readonly #list: () => readonly GatewayClient[];
  readonly soleAddress: string;
  readonly #remedy: string;
  #preferred = '';

  /** @param list  the gateways, in a fixed order; a Service's may change
   * @param soleAddress  address of the only gateway; '' if there are, or may be, several
   * @param remedy  what to check if a gateway is missing */
  constructor(list: () => readonly GatewayClient[], soleAddress: string, remedy: string) {
    this.#list = list;
    this.soleAddress = soleAddress;
    this.#remedy = remedy;
  }

  get gateways(): readonly GatewayClient[] {
    return this.#list();
  }

  /** Why the pool has no gateway, if it has none. */
  get whyNone(): string {
    return `no gateway can be called: see ${this.#remedy}`;
  }

  /** All gateways, the preferred one first. */
  inOrder(): readonly GatewayClient[] {
    const rank = ({ address }: GatewayClient): number => Number(address !== this.#preferred);
    return [...this.gateways].sort((a, b) => rank(a) - rank(b));
  }

  /** Prefers a gateway. Ignores an address that is not in the pool. */
  prefer(address: string): void {
    if (this.#find(address) !== undefined) this.#preferred = address;
  }

  async createVolume(
    request: Parameters<CsiCalls['createVolume']>[0],
    settings: ControllerCallSettings,
  ): ReturnType<CsiCalls['createVolume']> {
    return this.#named(settings.gateway, 'CreateVolume').createVolume(request, settings);
  }

  async deleteVolume(
    request: Parameters<CsiCalls['deleteVolume']>[0],
    settings: ControllerCallSettings,
  ): ReturnType<CsiCalls['deleteVolume']> {
    return this.#named(settings.gateway, 'DeleteVolume').deleteVolume(request, settings);
  }

  async getCapacity(
    request: Parameters<CsiCalls['getCapacity']>[0],
    settings: ControllerCallSettings,
  ): ReturnType<CsiCalls['getCapacity']> {
    return this.#named(settings.gateway, 'GetCapacity').getCapacity(request, settings);
  }

  async listVolumes(
    ...[request, settings]: Parameters<CsiCalls['listVolumes']>
  ): ReturnType<CsiCalls['listVolumes']> {
    const [gateway] = this.inOrder();
    if (gateway === undefined) throw notSent('ListVolumes', this.whyNone);
    return gateway.client.listVolumes(request, settings);
  }

  #find(address: string): GatewayClient | undefined {
    return this.gateways.find((gateway) => gateway.address === address);
  }

  #named(named: string, method: string): CsiCalls {
    const address = named === '' ? this.soleAddress : named;
    const gateway = this.#find(address);
    if (gateway === undefined)
      throw notSent(
        method,
        address === ''
          ? 'no leading ingest has named the active gateway yet'
          : `the active gateway ${address} is not among the gateways of this process: ` +
              `see ${this.#remedy}`,
      );
    this.#preferred = address;
    return gateway.client;
  }
}

function notSent(method: string, details: string): Error {
  return createNotSentError({
    method: `/csi.v1.Controller/${method}`,
    code: Code.Unavailable,
    details,
  });
}

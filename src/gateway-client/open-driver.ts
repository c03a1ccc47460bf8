import type { KubeClient } from '../kube/client.ts';
import { formatAddress, isLoopback, parseAddress } from '../runtime/address.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Closers } from '../runtime/closers.ts';
import { type Flags, UsageError } from '../runtime/flags.ts';
import type { HealthChecks } from '../runtime/health.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';
import { CsiClient, type CsiClientOptions } from './client.ts';
import { checkTlsFlags, type ClientTls, openClientTls } from './credentials.ts';
import { DriverWatch } from './driver-watch.ts';
import { gatewayClientFlags } from './flags.ts';
import { GatewayPool } from './pool.ts';
import { parseService, SERVICE_REMEDY, ServiceGateways } from './service-gateways.ts';

/** How a process reaches its driver. */
export interface DriverAccess {
  readonly gateways: GatewayPool;
  readonly driver: DriverWatch;
}

interface Context {
  readonly flags: Flags<typeof gatewayClientFlags>;
  readonly closers: Closers;
  readonly health: Pick<HealthChecks, 'ready'>;
  readonly log: Logger;
  readonly metrics?: Registry;
}

/** Opens the gateways that the flags name, and starts watching the driver behind them. Does not
 * wait for a connection. The context's closers close both.
 * @param kube  to find the gateways behind a Service
 * @param name  of the driver, or '' if it is not known; gateways of other drivers are not used
 * @throws UsageError for TLS files that can't be used and for addresses that must not be called */
export async function openDriver(
  context: Context,
  kube: KubeClient,
  name: string,
): Promise<DriverAccess> {
  const { flags, closers, log } = context;
  checkGatewayFlags(flags);
  const tls = await openClientTls(flags, log);
  closers.add('gateway TLS files', () => tls?.source.close());
  return watchDriver(context, openGateways(context, kube, tls), name);
}

/** Starts watching the driver behind gateways, or the driver itself, until the context closes.
 * @param name  of the driver, as for openDriver */
export function watchDriver(
  {
    flags: { timeoutMs },
    closers,
    log,
  }: Pick<Context, 'closers' | 'log'> & {
    readonly flags: { readonly timeoutMs: number };
  },
  gateways: GatewayPool,
  name: string,
): DriverAccess {
  const driver = new DriverWatch({ gateways, name, timeoutMs, clock: systemClock, log });
  closers.add('driver watch', () => driver.close());
  return { gateways, driver };
}

function openGateways(
  { flags, closers, health, log, metrics }: Context,
  kube: KubeClient,
  tls: ClientTls | undefined,
): GatewayPool {
  const options = { tls, showsShortSecrets: flags.showMessagesWithShortSecrets };
  if (flags.gatewayService === '') return openFixedGateways(flags.gateway, closers, options);
  const service = parseService(flags.gatewayService);
  const gateways = new ServiceGateways({ ...options, kube, service, log, metrics });
  closers.add('gateway clients', () => gateways.close());
  health.ready('gateway-endpoints', () => gateways.trouble);
  return new GatewayPool(() => gateways.list(), '', SERVICE_REMEDY);
}

/** Opens the gateways of --gateway. They connect at their first call, and close with the closers.
 * @throws UsageError for an unreadable address */
export function openFixedGateways(
  addresses: readonly string[],
  closers: Closers,
  options: Omit<CsiClientOptions, 'address'>,
): GatewayPool {
  const clients = new Map<string, CsiClient>();
  for (const text of addresses) {
    const address = parseAddress('gateway', text);
    const name = formatAddress(address);
    if (!clients.has(name)) clients.set(name, new CsiClient({ ...options, address }));
  }
  closers.add('gateway clients', () => {
    for (const client of clients.values()) client.close();
  });
  const gateways = [...clients].map(([address, client]) => ({ address, client }));
  const [first, second] = gateways;
  const soleAddress = second === undefined ? (first?.address ?? '') : '';
  const remedy = '--gateway, which must be the same for ingest and jobs';
  return new GatewayPool(() => gateways, soleAddress, remedy);
}

const TLS_REMEDY =
  'give --gateway-tls-ca, --gateway-tls-cert and --gateway-tls-key, or --gateway-insecure';

/** Refuses flags that contradict each other or let others read the calls. Reads no TLS files.
 * @throws UsageError */
export function checkGatewayFlags(flags: Flags<typeof gatewayClientFlags>): void {
  const { gateway, gatewayService } = flags;
  const isPlain = checkTlsFlags(flags) === undefined && !flags.gatewayInsecure;
  const isDefault = gateway.join(',') === gatewayClientFlags.gateway.default;
  if (gatewayService !== '') {
    parseService(gatewayService);
    if (gateway.length > 0 && !isDefault)
      throw new UsageError('--gateway and --gateway-service: give one of them');
    if (isPlain)
      throw new UsageError(`--gateway-service: gateways of other pods need TLS; ${TLS_REMEDY}`);
    return;
  }
  if (gateway.length === 0)
    throw new UsageError(
      '--gateway: the address of a gateway is missing; give it, or --gateway-service=NAMESPACE/NAME',
    );
  for (const text of gateway) {
    const address = parseAddress('gateway', text);
    if (isPlain && address.kind === 'tcp' && !isLoopback(address.host))
      throw new UsageError(
        `--gateway: ${address.host} is beyond loopback, which needs TLS; ${TLS_REMEDY}`,
      );
  }
}

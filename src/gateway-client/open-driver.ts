import type { KubeClient } from '../kube/client.ts';
import { parseAddress } from '../runtime/address.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Closers } from '../runtime/closers.ts';
import { type Flags, UsageError } from '../runtime/flags.ts';
import type { HealthChecks } from '../runtime/health.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';
import {
  checkTlsFlags,
  type GatewaySecurity,
  openGatewaySecurity,
  refusePlaintext,
} from './credentials.ts';
import { DriverWatch } from './driver-watch.ts';
import { type Endpoints, parseService, watchEndpoints } from './endpoints.ts';
import { gatewayClientFlags } from './flags.ts';
import { type GatewayPool, openGatewayPool, openServiceGatewayPool } from './pool.ts';

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

/** Opens the gateways that the flags name and starts watching the driver behind them. Does not wait
 * for a connection. All are closed with the context.
 * @param kube           to find the gateways behind a Service
 * @param expected.name  name of the driver, where it is known; a gateway of another one is not used
 * @throws UsageError for TLS files that can't be used and for addresses that must not be called */
export async function openDriver(
  context: Context,
  kube: KubeClient,
  expected: { readonly name?: string } = {},
): Promise<DriverAccess> {
  const { flags, closers, log } = context;
  const security = await openGatewaySecurity(flags, { clock: systemClock, log });
  closers.add('gateway TLS files', () => security.close());
  const showsShortSecrets = flags.showMessagesWithShortSecrets;
  let gateways: GatewayPool;
  if (flags.gatewayService === '') {
    gateways = openGatewayPool({ addresses: flags.gateway, security, showsShortSecrets, log });
  } else {
    const endpoints = openEndpoints(context, kube, security);
    gateways = openServiceGatewayPool({ endpoints, security, showsShortSecrets, log });
  }
  closers.add('gateway clients', () => gateways.close());
  const { timeoutMs } = flags;
  const driver = new DriverWatch({ gateways, expected, timeoutMs, clock: systemClock, log });
  closers.add('driver watch', () => driver.close());
  return { gateways, driver };
}

/** The gateways of --gateway-service. */
function openEndpoints(
  { flags, closers, health, log, metrics }: Context,
  client: KubeClient,
  security: GatewaySecurity,
): Endpoints {
  refusePlaintextToPods(security);
  const endpoints = watchEndpoints({
    client,
    service: parseService(flags.gatewayService),
    log,
    ...(metrics === undefined ? {} : { metrics }),
  });
  closers.add('gateway endpoints', () => endpoints.stop());
  health.ready('gateway-endpoints', () => endpoints.trouble);
  return endpoints;
}

/** Finds in the flags alone what openDriver would refuse; TLS files are not read.
 * @throws UsageError */
export function checkGatewayFlags(flags: Flags<typeof gatewayClientFlags>): void {
  const security = { tls: checkTlsFlags(flags), insecure: flags.gatewayInsecure };
  const { gateway, gatewayService } = flags;
  const isDefault = gateway.join(',') === gatewayClientFlags.gateway.default;
  if (gatewayService !== '') {
    parseService(gatewayService);
    refusePlaintextToPods(security);
    if (gateway.length === 0 || isDefault) return;
    throw new UsageError('--gateway and --gateway-service: give one of them');
  }
  if (gateway.length === 0) throw new UsageError('--gateway: the address of a gateway is missing');
  for (const text of gateway) refusePlaintext(parseAddress('gateway', text), security);
}

/** @throws UsageError where gateways behind a Service would be called in plaintext by mistake */
function refusePlaintextToPods(security: {
  readonly tls: object | undefined;
  readonly insecure: boolean;
}): void {
  if (security.tls !== undefined || security.insecure) return;
  throw new UsageError(
    '--gateway-service: gateways of other pods need TLS; give --gateway-tls-ca, ' +
      '--gateway-tls-cert and --gateway-tls-key, or --gateway-insecure',
  );
}

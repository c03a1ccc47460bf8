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
import { fixedGateways } from './fixed-gateways.ts';
import { gatewayClientFlags } from './flags.ts';
import { GatewayPool, type Gateways } from './pool.ts';
import { parseService, ServiceGateways } from './service-gateways.ts';

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
 * @param kube  to find the gateways behind a Service
 * @param name  of the driver; a gateway of another one is not used. '' if it is not known
 * @throws UsageError for TLS files that can't be used and for addresses that must not be called */
export async function openDriver(
  context: Context,
  kube: KubeClient,
  name: string,
): Promise<DriverAccess> {
  const { flags, closers, log } = context;
  const security = await openGatewaySecurity(flags, { clock: systemClock, log });
  closers.add('gateway TLS files', () => security.close());
  return watchDriver(context, openGateways(context, kube, security), name);
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
  of: Gateways,
  name: string,
): DriverAccess {
  const gateways = new GatewayPool(of);
  const driver = new DriverWatch({ gateways, name, timeoutMs, clock: systemClock, log });
  closers.add('driver watch', () => driver.close());
  return { gateways, driver };
}

function openGateways(
  { flags, closers, health, log, metrics }: Context,
  kube: KubeClient,
  security: GatewaySecurity,
): Gateways {
  const options = { security, showsShortSecrets: flags.showMessagesWithShortSecrets, log };
  if (flags.gatewayService === '') {
    const fixed = fixedGateways({ ...options, addresses: flags.gateway });
    closers.add('gateway clients', () => fixed.close());
    return fixed;
  }
  refusePlaintextToPods(security);
  const service = parseService(flags.gatewayService);
  const gateways = new ServiceGateways({ ...options, kube, service, metrics });
  closers.add('gateway clients', () => gateways.close());
  health.ready('gateway-endpoints', () => gateways.trouble);
  return gateways;
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
  if (gateway.length === 0)
    throw new UsageError(
      '--gateway: the address of a gateway is missing; give it, or --gateway-service=NAMESPACE/NAME',
    );
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

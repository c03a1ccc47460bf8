// Refuses flags for which no gateway can be called, without opening anything.
import { parseAddress } from '../runtime/address.ts';
import { type Flags, UsageError } from '../runtime/flags.ts';
import { checkTlsFlags, refusePlaintext } from './credentials.ts';
import { gatewayClientFlags } from './flags.ts';
import { parseNodeGateways, parseService } from './endpoints.ts';
import { checkNodeFlags } from './node-pool.ts';

/** Finds in the flags alone what openDriver would refuse; TLS files are not read.
 * @throws UsageError */
export function checkGatewayFlags(flags: Flags<typeof gatewayClientFlags>): void {
  const security = { tls: checkTlsFlags(flags), insecure: flags.gatewayInsecure };
  if (flags.nodeDeployment) checkNodeFlags(flags);
  if (flags.gatewayService !== '') {
    parseService(flags.gatewayService);
    refusePlaintextToPods(security);
  }
  if (!flags.nodeDeployment) return checkCentralFlags(flags, security);
  for (const address of parseNodeGateways(flags.nodeGateway).values())
    refusePlaintext(address, security, 'node-gateway');
}

/** @throws UsageError */
function checkCentralFlags(
  { gateway, gatewayService }: Flags<typeof gatewayClientFlags>,
  security: Parameters<typeof refusePlaintext>[1],
): void {
  const isDefault = gateway.join(',') === gatewayClientFlags.gateway.default;
  if (gatewayService !== '') {
    if (gateway.length === 0 || isDefault) return;
    throw new UsageError('--gateway and --gateway-service: give one of them');
  }
  if (gateway.length === 0) throw new UsageError('--gateway: the address of a gateway is missing');
  for (const text of gateway) refusePlaintext(parseAddress('gateway', text), security);
}

/** @throws UsageError where gateways behind a Service would be called in plaintext by mistake */
export function refusePlaintextToPods(security: {
  readonly tls: object | undefined;
  readonly insecure: boolean;
}): void {
  if (security.tls !== undefined || security.insecure) return;
  throw new UsageError(
    '--gateway-service: gateways of other pods need TLS; give --gateway-tls-ca, ' +
      '--gateway-tls-cert and --gateway-tls-key, or --gateway-insecure',
  );
}

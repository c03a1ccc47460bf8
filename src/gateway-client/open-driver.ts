// How ingest, jobs and audit reach their driver. Builds on all other files of this folder.
import type { KubeClient } from '../kube/client.ts';
import { parseAddress } from '../runtime/address.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Closers } from '../runtime/closers.ts';
import type { Flags } from '../runtime/flags.ts';
import type { HealthChecks } from '../runtime/health.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';
import { refusePlaintextToPods } from './check-flags.ts';
import { type GatewaySecurity, openGatewaySecurity, refusePlaintext } from './credentials.ts';
import { DriverWatch } from './driver-watch.ts';
import type { gatewayClientFlags } from './flags.ts';
import {
  type Endpoints,
  fixedNodeEndpoints,
  parseNodeGateways,
  parseService,
  podOrHost,
  readyNode,
  watchEndpoints,
} from './endpoints.ts';
import { InstanceCheck } from './instance-check.ts';
import { checkNodeFlags, type NodeGatewayPool, openNodeGatewayPool } from './node-pool.ts';
import { type GatewayPool, openGatewayPool, openServiceGatewayPool } from './pool.ts';

/** How a process reaches its driver. */
export interface DriverAccess {
  readonly gateways: GatewayPool;
  /** The same, with --node-deployment; otherwise undefined. */
  readonly nodeGateways: NodeGatewayPool | undefined;
  readonly driver: DriverWatch;
}

interface Context {
  readonly flags: Flags<typeof gatewayClientFlags>;
  readonly closers: Closers;
  readonly health: Pick<HealthChecks, 'ready'>;
  readonly log: Logger;
  readonly metrics?: Registry;
}

/** Which driver must answer; without a name, each will do. */
interface Expected {
  readonly name?: string;
}

/** Opens the gateways that the flags name and starts watching the driver behind them. Does not wait
 * for a connection. All are closed with the context.
 * @param kube           to find the gateways behind a Service
 * @param expected.name  name of the driver, where it is known; a gateway of another one is not used
 * @throws UsageError for TLS files that can't be used and for addresses that must not be called */
export async function openDriver(
  context: Context,
  kube: KubeClient,
  expected: Expected = {},
): Promise<DriverAccess> {
  const { flags, closers, log } = context;
  const security = await openGatewaySecurity(flags, { clock: systemClock, log });
  closers.add('gateway TLS files', () => security.close());
  const showsShortSecrets = flags.showMessagesWithShortSecrets;
  let nodeGateways: NodeGatewayPool | undefined;
  let gateways: GatewayPool;
  if (flags.nodeDeployment) {
    const endpoints = openNodeEndpoints(context, kube, security);
    nodeGateways = openNodeGatewayPool({ endpoints, security, showsShortSecrets, log });
    gateways = nodeGateways;
  } else if (flags.gatewayService === '') {
    gateways = openGatewayPool({ addresses: flags.gateway, security, showsShortSecrets, log });
    openInstanceCheck(context, security);
  } else {
    const endpoints = openEndpoints(context, kube, security, podOrHost);
    gateways = openServiceGatewayPool({ endpoints, security, showsShortSecrets, log });
  }
  closers.add('gateway clients', () => gateways.close());
  const { timeoutMs } = flags;
  const driver = new DriverWatch({ gateways, expected, timeoutMs, clock: systemClock, log });
  closers.add('driver watch', () => driver.close());
  return { gateways, nodeGateways, driver };
}

/** Watches whether an address of --gateway leads to several gateways. */
function openInstanceCheck(
  { flags, closers, health, log }: Context,
  security: GatewaySecurity,
): void {
  const { timeoutMs } = flags;
  const addresses = flags.gateway.map((text) => parseAddress('gateway', text));
  const check = new InstanceCheck({ addresses, security, timeoutMs, clock: systemClock, log });
  closers.add('gateway addresses', () => check.close());
  health.ready('gateway-addresses', () => check.trouble);
}

function openNodeEndpoints(
  context: Context,
  client: KubeClient,
  security: GatewaySecurity,
): Endpoints {
  const { flags } = context;
  checkNodeFlags(flags);
  if (flags.gatewayService !== '') return openEndpoints(context, client, security, readyNode);
  const addresses = parseNodeGateways(flags.nodeGateway);
  for (const address of addresses.values()) refusePlaintext(address, security, 'node-gateway');
  return fixedNodeEndpoints(addresses);
}

/** The gateways of --gateway-service. */
function openEndpoints(
  { flags, closers, health, log, metrics }: Context,
  client: KubeClient,
  security: GatewaySecurity,
  nameOf: typeof podOrHost,
): Endpoints {
  refusePlaintextToPods(security);
  const endpoints = watchEndpoints({
    client,
    service: parseService(flags.gatewayService),
    nameOf,
    log,
    ...(metrics === undefined ? {} : { metrics }),
  });
  closers.add('gateway endpoints', () => endpoints.stop());
  health.ready('gateway-endpoints', () => endpoints.trouble);
  return endpoints;
}

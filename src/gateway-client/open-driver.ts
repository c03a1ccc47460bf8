// How ingest, jobs and audit reach their driver. Builds on all other files of this folder.
import type { KubeClient } from '../kube/client.ts';
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
  fixedNodeEndpoints,
  type NodeEndpoints,
  parseNodeGateways,
  parseService,
  watchNodeEndpoints,
} from './node-endpoints.ts';
import { checkNodeFlags, type NodeGatewayPool, openNodeGatewayPool } from './node-pool.ts';
import { type GatewayPool, openGatewayPool } from './pool.ts';

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
 * @param kube           to find the gateways of nodes
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
  } else gateways = openGatewayPool({ addresses: flags.gateway, security, showsShortSecrets, log });
  closers.add('gateway clients', () => gateways.close());
  const { timeoutMs } = flags;
  const driver = new DriverWatch({ gateways, expected, timeoutMs, clock: systemClock, log });
  closers.add('driver watch', () => driver.close());
  return { gateways, nodeGateways, driver };
}

function openNodeEndpoints(
  { flags, closers, health, log, metrics }: Context,
  client: KubeClient,
  security: GatewaySecurity,
): NodeEndpoints {
  checkNodeFlags(flags);
  if (flags.gatewayService === '') {
    const addresses = parseNodeGateways(flags.nodeGateway);
    for (const address of addresses.values()) refusePlaintext(address, security, 'node-gateway');
    return fixedNodeEndpoints(addresses);
  }
  refusePlaintextToPods(security);
  const endpoints = watchNodeEndpoints({
    client,
    service: parseService(flags.gatewayService),
    log,
    ...(metrics === undefined ? {} : { metrics }),
  });
  closers.add('node gateways', () => endpoints.stop());
  health.ready('node-gateways', () => endpoints.trouble);
  return endpoints;
}

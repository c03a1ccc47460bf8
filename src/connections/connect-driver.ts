import type { gatewayClientFlags } from '../gateway-client/flags.ts';
import { type DriverAccess, openDriver } from '../gateway-client/open-driver.ts';
import type { DriverContext } from '../driver-config/driver-set.ts';
import type { Connections } from './open-connections.ts';

/** What ingest and jobs connect to for one driver: the connections of the process, which all its
 * drivers share, and the driver's own gateways. */
export interface DriverConnections extends Connections, DriverAccess {}

/** Opens the gateways of a driver, adds their checks and notes to /readyz, and closes them with the
 * driver. Does not wait for a connection.
 * @param expected.name  of the driver, where it is known
 * @throws UsageError for flags that can't be used */
export async function connectDriver(
  context: DriverContext<typeof gatewayClientFlags>,
  connections: Connections,
  expected: { readonly name?: string } = {},
): Promise<DriverConnections> {
  const access = await openDriver(context, connections.kube, expected);
  context.health.ready('driver', () => access.driver.trouble);
  context.health.note('gateway-clock', () => access.gateways.skew);
  return { ...connections, ...access };
}

import { CsiClient } from '#src/gateway-client/client.ts';
import { openFixedGateways } from '#src/gateway-client/open-driver.ts';
import { type GatewayClient, GatewayPool } from '#src/gateway-client/pool.ts';
import type { Address } from '#src/runtime/address.ts';
import { Closers } from '#src/runtime/closers.ts';

/** A pool whose connections a test closes. */
export type TestPool = GatewayPool & { close(): void };

/** The gateways of --gateway, in plaintext. */
export function openTestPool(...addresses: readonly string[]): TestPool {
  const closers = new Closers();
  const pool = openFixedGateways(addresses, closers, {});
  return Object.assign(pool, { close: () => void closers.close() });
}

/** The gateways behind a Service, without an API server.
 * @param addresses  by the name of the gateway; may change */
export function openPoolOf(addresses: ReadonlyMap<string, Address>): TestPool {
  const clients = new Map<string, CsiClient>();
  const clientOf = ([name, address]: readonly [string, Address]): GatewayClient => {
    const client = clients.get(name) ?? new CsiClient({ address });
    clients.set(name, client);
    return { address: name, client };
  };
  const pool = new GatewayPool(() => [...addresses].map(clientOf), '', '--gateway-service');
  const close = (): void => {
    for (const client of clients.values()) client.close();
  };
  return Object.assign(pool, { close });
}

import type { Endpoints } from '#src/gateway-client/endpoints.ts';
import type { Address } from '#src/runtime/address.ts';

/** Gateways behind a Service, without an API server.
 * @param addresses  by the name of the gateway; may change */
export function fixedEndpoints(addresses: ReadonlyMap<string, Address>): Endpoints {
  return {
    addressOf: (name) => addresses.get(name),
    names: () => addresses.keys(),
    onChange: () => undefined,
    serverName: '',
    trouble: undefined,
    stop: () => Promise.resolve(),
  };
}

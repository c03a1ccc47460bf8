import { formatAddress, parseAddress } from '../runtime/address.ts';
import { CsiClient, type CsiClientOptions } from './client.ts';
import type { Gateways } from './pool.ts';

/** The gateways of --gateway. They connect when they are first called.
 * @throws UsageError for an unreadable address */
export function fixedGateways(
  addresses: readonly string[],
  options: Omit<CsiClientOptions, 'address'>,
): Gateways & { close(): void } {
  const clients = new Map<string, CsiClient>();
  for (const text of addresses) {
    const address = parseAddress('gateway', text);
    const name = formatAddress(address);
    if (!clients.has(name)) clients.set(name, new CsiClient({ ...options, address }));
  }
  const gateways = [...clients].map(([address, client]) => ({ address, client }));
  const [first, second] = gateways;
  return {
    list: () => gateways,
    soleAddress: second === undefined ? (first?.address ?? '') : '',
    remedy: '--gateway, which must be the same for ingest and jobs',
    close() {
      for (const client of clients.values()) client.close();
    },
  };
}

import { formatAddress, parseAddress } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';
import { CsiClient } from './client.ts';
import { type GatewaySecurity, refusePlaintext } from './credentials.ts';
import type { Gateways } from './pool.ts';

/** The gateways of --gateway. They connect when they are first called.
 * @throws UsageError for an empty list, an unreadable address, and one that needs TLS */
export function fixedGateways(o: {
  readonly addresses: readonly string[];
  readonly security: Pick<GatewaySecurity, 'tls' | 'insecure'>;
  readonly showsShortSecrets: boolean;
  readonly log: Logger;
}): Gateways & { close(): void } {
  const { security, showsShortSecrets, log } = o;
  const clients = new Map<string, CsiClient>();
  for (const text of o.addresses) {
    const address = parseAddress('gateway', text);
    refusePlaintext(address, security);
    const options = { address, log, tls: security.tls, showsShortSecrets };
    if (!clients.has(formatAddress(address)))
      clients.set(formatAddress(address), new CsiClient(options));
  }
  if (clients.size === 0)
    throw new UsageError(
      '--gateway: empty; name the csi-gateway, like unix:///run/sutler/gateway.sock',
    );
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

import { BlockList, isIP } from 'node:net';
import type { Request } from 'express';
import { UsageError } from '../runtime/flags.ts';

/** Reads --dashboard-trusted-proxies: IP addresses, and networks such as 10.1.0.0/16.
 * @returns whether an address is one of them
 * @throws UsageError */
export function parseProxies(items: readonly string[]): (address: string) => boolean {
  const proxies = new BlockList();
  for (const item of items) {
    const [address = '', bits] = item.split('/');
    const version = isIP(address);
    const maxBits = version === 4 ? 32 : 128;
    const prefixBits = bits === undefined ? maxBits : /^\d{1,3}$/.test(bits) ? Number(bits) : -1;
    // A prefix of 0 bits would believe everybody.
    if (version === 0 || item.split('/').length > 2 || prefixBits < 1 || prefixBits > maxBits)
      throw new UsageError(
        `--dashboard-trusted-proxies: "${item}" is not an IP address or network; ` +
          'write 10.1.2.3 or 10.1.0.0/16',
      );
    proxies.addSubnet(address, prefixBits, version === 4 ? 'ipv4' : 'ipv6');
  }
  return (address) => {
    const version = isIP(address);
    return version !== 0 && proxies.check(address, version === 4 ? 'ipv4' : 'ipv6');
  };
}

/** The address of the client: that of the connection, or the one that trusted proxies report. */
export function addressOf({ ip = '', socket }: Request): string {
  // A proxy may report something else than an address, and the header may come from anywhere.
  return isIP(ip) === 0 ? (socket.remoteAddress ?? '') : (ip.split('%')[0] ?? ip);
}

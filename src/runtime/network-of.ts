/** The network from which somebody connects, as far as one person is likely to have all of it: an
 * IPv4 address, the /64 of an IPv6 address, or "loopback". Limits count by it.
 * @param address  as Node gives it; text that is no address is returned as it is */
export function networkOf(address: string): string {
  const bare = address.split('%')[0] ?? address;
  const ipv4 = /^(?:::ffff:)?(\d+\.\d+\.\d+\.\d+)$/i.exec(bare)?.[1];
  if (ipv4 !== undefined) return ipv4.startsWith('127.') ? 'loopback' : ipv4;
  if (!bare.includes(':') || !URL.canParse(`http://[${bare}]`)) return bare;
  // The canonical spelling: lower case, no zeros in front, the longest run of zeros as "::".
  const canonical = new URL(`http://[${bare}]`).hostname.slice(1, -1);
  if (canonical === '::1') return 'loopback';
  const [head = [], tail] = canonical.split('::').map((part) => part.split(':').filter(Boolean));
  const zeros = tail === undefined ? 0 : 8 - head.length - tail.length;
  const groups = [...head, ...Array.from({ length: zeros }, () => '0'), ...(tail ?? [])];
  return groups.slice(0, 4).join(':');
}

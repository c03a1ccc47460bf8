import { UsageError } from './flags.ts';

/** Address on which a gateway or a driver listens. */
export type Address =
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number };

/** Parses `unix:///path`, `/path` (a socket) or `dns:///host:port`, with IPv6 hosts in brackets.
 * @param flag  the flag that the error names
 * @throws      UsageError */
export function parseAddress(flag: string, text: string): Address {
  const path = text.startsWith('unix://') ? text.slice('unix://'.length) : text;
  if (path.startsWith('/')) {
    // The kernel's limit. Its own error, "invalid argument", does not mention the length.
    if (Buffer.byteLength(path) > 107)
      throw new UsageError(
        `--${flag}: the socket path ${path} is longer than 107 bytes; choose a shorter one`,
      );
    return { kind: 'unix', path };
  }
  const match = /^dns:\/\/\/(?:\[([^\]]+)\]|([^:/[\]]+)):(\d+)$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (host === undefined || !(port <= 65_535)) {
    throw new UsageError(
      `--${flag}: "${text}" is not an address; write unix:///path/to/socket or dns:///host:port`,
    );
  }
  return { kind: 'tcp', host, port };
}

/** Formats an address as parseAddress reads it. */
export function formatAddress(address: Address): string {
  if (address.kind === 'unix') return `unix://${address.path}`;
  return `dns:///${bracketIPv6(address.host)}:${address.port}`;
}

/** The host as it is written in an address or URL: IPv6 in brackets. */
export function bracketIPv6(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}

export function withoutBrackets(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1');
}

/** Parses a listen address in Go's notation: ":8080" (all interfaces), "127.0.0.1:0", "[::1]:80".
 * @throws UsageError */
export function parseListenAddress(
  flag: string,
  text: string,
): { readonly host: string | undefined; readonly port: number } {
  const match = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d+)$/.exec(text);
  const port = Number(match?.[3]);
  if (!match || !(port <= 65_535))
    throw new UsageError(
      `--${flag}: "${text}" is not a listen address; write :8080 or 127.0.0.1:8080`,
    );
  const host = match[1] ?? match[2] ?? '';
  return { host: host === '' ? undefined : host, port };
}

/** Whether a host can be reached from this machine only. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d+\.\d+\.\d+$/.test(host);
}

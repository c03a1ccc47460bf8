import { UsageError } from './flags.ts';

/** Where a gateway or a driver listens. */
export type Address =
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number };

/** Reads `unix:///path`, `/path` (a socket) or `dns:///host:port`, IPv6 hosts in brackets.
 * @param flag  named in the error
 * @throws      UsageError */
export function parseAddress(flag: string, text: string): Address {
  const path = text.startsWith('unix://') ? text.slice('unix://'.length) : text;
  if (path.startsWith('/')) {
    // The kernel's limit for a socket path is 107 bytes and its own error ("invalid argument") does
    // not say so.
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

/** The notation that parseAddress reads. */
export function formatAddress(address: Address): string {
  if (address.kind === 'unix') return `unix://${address.path}`;
  return `dns:///${address.host.includes(':') ? `[${address.host}]` : address.host}:${address.port}`;
}

/** Host and port of a listen address in Go's notation: ":8080" (all interfaces), "127.0.0.1:0",
 * "[::1]:80".
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

/** Whether a host is this machine only. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d+\.\d+\.\d+$/.test(host);
}

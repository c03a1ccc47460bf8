import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import { bracketIPv6, parseListenAddress } from './address.ts';
import { bind } from './socket-file.ts';

/** How long a client may take to send its headers and its request: options of createServer. */
export const TIME_LIMITS = {
  headersTimeout: 5_000,
  requestTimeout: 10_000,
  connectionsCheckingInterval: 1_000,
};

/** Binds a server to the listen address given by a flag.
 * @param flag    name without "--", for errors
 * @param idleMs  longest pause of a connection on which an answer is prepared or read
 * @returns the URL without a path, and a close() that also ends open connections
 * @throws UsageError when the port is in use or the address is not this machine's */
export async function listenHttp(
  server: Server | TlsServer,
  flag: string,
  address: string,
  idleMs: number,
): Promise<{ readonly url: string; readonly close: () => Promise<void> }> {
  const { host, port } = parseListenAddress(flag, address);
  server.timeout = idleMs;
  await bind(server, { port, host }, `--${flag} ${address}`);
  const bound = server.address();
  const scheme = server instanceof TlsServer ? 'https' : 'http';
  const boundPort = typeof bound === 'object' && bound !== null ? bound.port : port;
  return {
    url: `${scheme}://${bracketIPv6(host ?? '127.0.0.1')}:${boundPort}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

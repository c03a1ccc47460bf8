import type { Server } from 'node:http';
import { bracketIPv6, parseListenAddress } from './address.ts';
import { UsageError } from './flags.ts';

/** Binds a server to the listen address given by a flag.
 * @param flag  name without "--", for errors
 * @returns the URL without a path, and a close() that also ends open connections
 * @throws UsageError when the port is in use or the address is not this machine's */
export async function listenHttp(
  server: Server,
  flag: string,
  address: string,
): Promise<{ readonly url: string; readonly close: () => Promise<void> }> {
  const { host, port } = parseListenAddress(flag, address);
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      const why =
        cause.code === 'EADDRINUSE'
          ? 'the port is in use; stop its owner or choose another'
          : cause.message;
      reject(new UsageError(`--${flag} ${address}: ${why}`, { cause }));
    });
    server.listen(port, host, resolve);
  });
  const bound = server.address();
  const boundPort = typeof bound === 'object' && bound !== null ? bound.port : port;
  return {
    url: `http://${bracketIPv6(host ?? '127.0.0.1')}:${boundPort}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

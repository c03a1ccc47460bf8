import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { bracketIPv6, parseListenAddress } from './address.ts';
import { UsageError } from './flags.ts';

/** Binds a server to the listen address given by a flag.
 * @param flag  name without "--", for errors
 * @returns the URL without a path, and a close() that also ends open connections
 * @throws UsageError when the port is in use or the address is not this machine's */
export async function listenHttp(
  server: Server | TlsServer,
  flag: string,
  address: string,
): Promise<{ readonly url: string; readonly close: () => Promise<void> }> {
  const { host, port } = parseListenAddress(flag, address);
  const sockets = trackSockets(server);
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
  const scheme = server instanceof TlsServer ? 'https' : 'http';
  const boundPort = typeof bound === 'object' && bound !== null ? bound.port : port;
  return {
    url: `${scheme}://${bracketIPv6(host ?? '127.0.0.1')}:${boundPort}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

/** The open connections of a server, also those that have not begun: the server itself does not
 * know these. */
function trackSockets(server: Server | TlsServer): ReadonlySet<Socket> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  return sockets;
}

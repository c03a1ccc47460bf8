import { createServer } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';

/** Port of a server that listens on TCP. */
export function portOf(server: { address(): AddressInfo | string | null }): number {
  const address = server.address();
  if (typeof address !== 'object' || address === null)
    throw new Error('the server does not listen on TCP');
  return address.port;
}

/** Starts an HTTP proxy that supports CONNECT only and records the targets.
 * @param toPort  of loopback, to which every tunnel leads; otherwise each leads to its target */
export async function startTunnelProxy(toPort?: number): Promise<{
  readonly url: string;
  readonly targets: string[];
  /** The Proxy-Authorization headers. */
  readonly logins: string[];
  close(): Promise<void>;
}> {
  const targets: string[] = [];
  const logins: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((_, response) => response.writeHead(405).end());
  server.on('connect', (request, client: Socket) => {
    const target = request.url ?? '';
    targets.push(target);
    logins.push(...[request.headers['proxy-authorization'] ?? []].flat());
    const { hostname, port } = toPort
      ? { hostname: '127.0.0.1', port: toPort }
      : new URL(`http://${target}`);
    const upstream = connect(Number(port), hostname, () => {
      client.write('HTTP/1.1 200 Connection established\r\n\r\n');
      upstream.pipe(client).pipe(upstream);
    });
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => sockets.delete(socket));
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${portOf(server)}`,
    targets,
    logins,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

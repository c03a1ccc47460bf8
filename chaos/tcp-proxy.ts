import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

/** How the proxy treats connections, present and new. open: it forwards them. cut: it resets them.
 * hang: it keeps them open and forwards no data. */
export type Passage = 'open' | 'cut' | 'hang';

/** A TCP proxy in front of a server. It forwards TLS without decrypting it. */
export interface TcpProxy {
  readonly port: number;
  /** Sets the port of the server; present connections stay where they are. */
  aim(port: number): void;
  set(passage: Passage): void;
  close(): Promise<void>;
}

interface Pair {
  readonly client: Socket;
  readonly upstream: Socket;
}

/** Listens on a free port.
 * @param host  a loopback address */
export async function startTcpProxy(host: string): Promise<TcpProxy> {
  let passage: Passage = 'open';
  let target = 0;
  const pairs = new Set<Pair>();
  /** Clients that connected while the proxy hangs. */
  const waiting = new Set<Socket>();

  const join = (client: Socket): void => {
    const pair = { client, upstream: connect(target, '127.0.0.1') };
    pairs.add(pair);
    const end = (): void => {
      pairs.delete(pair);
      pair.client.destroy();
      pair.upstream.destroy();
    };
    for (const socket of [pair.client, pair.upstream]) {
      socket.setNoDelay(true);
      socket.on('error', () => undefined);
      socket.once('close', end);
    }
    flow(pair);
  };
  const server = createServer((client) => {
    client.on('error', () => undefined);
    if (passage === 'cut') client.resetAndDestroy();
    else if (passage === 'open') join(client);
    else {
      waiting.add(client);
      client.once('close', () => waiting.delete(client));
    }
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, host, resolve);
  });

  return {
    port: (server.address() as AddressInfo).port,
    aim: (port) => (target = port),
    set(next) {
      passage = next;
      for (const pair of pairs) {
        if (next === 'cut') pair.client.resetAndDestroy();
        else if (next === 'hang') halt(pair);
        else flow(pair);
      }
      if (next === 'hang') return;
      for (const client of waiting) {
        if (next === 'open') join(client);
        else client.resetAndDestroy();
      }
      waiting.clear();
    },
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const { client } of pairs) client.destroy();
      for (const client of waiting) client.destroy();
      await closed;
    },
  };
}

function flow({ client, upstream }: Pair): void {
  client.pipe(upstream);
  upstream.pipe(client);
}

function halt({ client, upstream }: Pair): void {
  client.unpipe(upstream);
  upstream.unpipe(client);
  client.pause();
  upstream.pause();
}

import { connect } from 'node:net';
import { performance } from 'node:perf_hooks';
import { percentile } from './percentile.ts';

export interface Load {
  readonly url: string;
  /** Connections, each with one request under way. */
  readonly connections: number;
  readonly forMs: number;
  /** Headers and body of the next request on this connection. */
  readonly request: (connection: number) => { readonly headers: string; readonly body: string };
}

export interface LoadResult {
  /** Answers by status. */
  readonly statuses: ReadonlyMap<string, number>;
  /** Of answers with 2xx, per second. */
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Sends requests until the time is over: each connection one after the other, and a new connection
 * where the server ends one. It writes HTTP itself, so that the machine has time for the server. */
export async function runLoad(load: Load): Promise<LoadResult> {
  const endMs = performance.now() + load.forMs;
  const statuses = new Map<string, number>();
  const tookMs: number[] = [];
  const count = (status: string, ms: number): void => {
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
    if (status.startsWith('2')) tookMs.push(ms);
  };
  const keepSending = async (connection: number): Promise<void> => {
    while (performance.now() < endMs) await sendOnOne(load, { connection, endMs, count });
  };
  await Promise.all(Array.from({ length: load.connections }, (_, n) => keepSending(n)));
  return {
    statuses,
    perSecond: (tookMs.length * 1_000) / load.forMs,
    p50Ms: percentile(tookMs, 0.5),
    p99Ms: percentile(tookMs, 0.99),
  };
}

interface Sending {
  readonly connection: number;
  readonly endMs: number;
  readonly count: (status: string, ms: number) => void;
}

/** Sends on one connection until the server ends it, or the time is over. */
function sendOnOne({ url, request }: Load, { connection, endMs, count }: Sending): Promise<void> {
  const { hostname, port, pathname } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    let sentMs = 0;
    let received = '';
    const send = (): void => {
      if (performance.now() >= endMs) return void socket.destroy();
      const { headers, body } = request(connection);
      const length = Buffer.byteLength(body);
      sentMs = performance.now();
      const head = `POST ${pathname} HTTP/1.1\r\nHost: bench\r\n${headers}`;
      socket.write(`${head}Content-Length: ${length}\r\n\r\n${body}`);
    };
    socket.on('connect', send);
    socket.on('data', (data: Buffer) => {
      received += data.toString('latin1');
      const headEnd = received.indexOf('\r\n\r\n');
      const length = Number(/content-length: (\d+)/i.exec(received)?.[1] ?? 0);
      if (headEnd === -1 || received.length < headEnd + 4 + length) return;
      count(received.slice(9, 12), performance.now() - sentMs);
      const isLast = /^connection: close/im.test(received.slice(0, headEnd));
      received = '';
      if (isLast) socket.destroy();
      else send();
    });
    // An attempt that is refused is not repeated at once.
    socket.on('error', () => undefined);
    socket.on('close', () => setTimeout(resolve, 5));
  });
}

import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { createServer as createHttpsServer, type ServerOptions } from 'node:https';
import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { type ClusterAccess, NO_CREDENTIALS } from '#src/kube/credentials.ts';
import { bracketIPv6 } from '#src/runtime/address.ts';
import { portOf } from './kube-proxy.ts';

/** A request as the server received it. */
export interface Seen {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
  /** Connections are numbered from 1 in the order of their arrival. */
  readonly connection: number;
  readonly raw: IncomingMessage;
}

/** A watch that the server has not ended. */
export interface OpenWatch {
  readonly seen: Seen;
  readonly isClosed: boolean;
  send(type: string, object: unknown): void;
  /** Sends bytes unchanged. */
  write(bytes: string | Uint8Array): void;
  /** Ends the response cleanly. */
  end(): void;
  /** Resets the connection. */
  drop(): void;
  /** Calls this when the connection is closed or the response is complete. */
  onClose(listener: () => void): void;
}

export type Handler = (seen: Seen, reply: Reply) => void | Promise<void>;

export interface Reply {
  json(code: number, body: unknown, headers?: Record<string, string>): void;
  status(code: number, reason: string, message: string, headers?: Record<string, string>): void;
  text(code: number, body: string, headers?: Record<string, string>): void;
  watch(): OpenWatch;
  readonly response: ServerResponse;
}

/** An HTTP server whose answers a test scripts. It implements nothing of Kubernetes except the form
 * of a Status. */
export interface KubeServer {
  readonly url: string;
  readonly seen: Seen[];
  /** Connections accepted so far. */
  readonly connections: number;
  readonly openSockets: number;
  handler: Handler;
  close(): Promise<void>;
}

export async function startKubeServer(
  handler: Handler,
  tls?: ServerOptions,
  host = '127.0.0.1',
): Promise<KubeServer> {
  const sockets = new Map<Socket, number>();
  let connections = 0;
  const listener = (request: IncomingMessage, response: ServerResponse): void => {
    void (async () => {
      const body = await text(request);
      const url = new URL(request.url ?? '/', 'http://server');
      const seen: Seen = {
        method: request.method ?? '',
        path: url.pathname,
        query: url.searchParams,
        headers: request.headers,
        body,
        connection: sockets.get(request.socket) ?? 0,
        raw: request,
      };
      server.seen.push(seen);
      await server.handler(seen, createReply(seen, response));
    })().catch((error: unknown) => response.destroy(error instanceof Error ? error : undefined));
  };
  const http: Server = tls ? createHttpsServer(tls, listener) : createHttpServer(listener);
  http.on(tls ? 'secureConnection' : 'connection', (socket: Socket) => {
    sockets.set(socket, ++connections);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => http.listen(0, host, resolve));
  const server: KubeServer = {
    url: `${tls ? 'https' : 'http'}://${bracketIPv6(host)}:${portOf(http)}`,
    seen: [],
    handler,
    get connections() {
      return connections;
    },
    get openSockets() {
      return sockets.size;
    },
    close: () =>
      new Promise((resolve) => {
        http.close(() => resolve());
        for (const socket of sockets.keys()) socket.destroy();
      }),
  };
  return server;
}

function createReply(seen: Seen, response: ServerResponse): Reply {
  const send = (code: number, body: string, headers: Record<string, string>): void => {
    response.writeHead(code, headers).end(body);
  };
  return {
    response,
    json: (code, body, headers = {}) =>
      send(code, JSON.stringify(body), { 'content-type': 'application/json', ...headers }),
    status: (code, reason, message, headers = {}) =>
      send(code, JSON.stringify(statusOf(code, reason, message)), {
        'content-type': 'application/json',
        ...headers,
      }),
    text: (code, body, headers = {}) =>
      send(code, body, { 'content-type': 'text/plain', ...headers }),
    watch: () => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.flushHeaders();
      response.on('error', () => {});
      return {
        seen,
        get isClosed() {
          return response.destroyed || response.writableEnded;
        },
        send: (type, object) => void response.write(`${JSON.stringify({ type, object })}\n`),
        write: (bytes) => void response.write(bytes),
        end: () => void response.end(),
        drop: () => void response.socket?.resetAndDestroy(),
        onClose: (listener) => void response.once('close', listener),
      };
    },
  };
}

/** A Status object for a failure. */
export function statusOf(code: number, reason: string, message: string): object {
  return {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    code,
    reason,
    message,
  };
}

/** Cluster access without TLS and, by default, without credentials. */
export function plainAccess(
  server: { readonly url: string },
  o: Partial<ClusterAccess> = {},
): ClusterAccess {
  return {
    server: new URL(server.url),
    source: 'test',
    credentials: () => Promise.resolve(NO_CREDENTIALS),
    ...o,
  };
}

import { createServer, type RequestListener, type Server } from 'node:http';
import {
  createServer as createTlsServer,
  Server as TlsServer,
  type ServerOptions as TlsOptions,
} from 'node:https';
import type { Socket } from 'node:net';
import { bracketIPv6, parseListenAddress } from './address.ts';
import { UsageError } from './flags.ts';

export interface HttpServerOptions {
  /** Longest pause of a connection on which an answer is prepared or read. */
  readonly idleMs: number;
  /** Largest headers of a request; 8 KiB if absent. */
  readonly maxHeaderBytes?: number;
  /** Certificate and the like; plaintext if absent. */
  readonly tls?: TlsOptions;
}

/** Connections of which it is not known who is at the other end. */
const MAX_CONNECTIONS = { total: 512, perAddress: 256 };
/** Connections whose owner has shown a credential, counted apart from the others. */
const MAX_KNOWN = { total: 1_024, perAddress: 512 };
/** A header takes so many bytes at least. Node drops those beyond a number without a word. */
const MIN_HEADER_BYTES = 5;

/** An HTTP server whose connections, sizes and times are limited. */
export class HttpServer {
  readonly #server: Server | TlsServer;
  readonly #unknown = new Connections(MAX_CONNECTIONS);
  readonly #known = new Connections(MAX_KNOWN);

  constructor(options: HttpServerOptions, listener: RequestListener) {
    const { idleMs, maxHeaderBytes = 8 * 1024, tls } = options;
    const limits = {
      maxHeaderSize: maxHeaderBytes,
      headersTimeout: 5_000,
      requestTimeout: 10_000,
      keepAliveTimeout: 5_000,
      connectionsCheckingInterval: 1_000,
    };
    const server =
      tls === undefined
        ? createServer(limits, listener)
        : createTlsServer({ ...tls, ...limits, handshakeTimeout: 5_000 }, listener);
    server.maxHeadersCount = Math.ceil(maxHeaderBytes / MIN_HEADER_BYTES);
    server.maxRequestsPerSocket = 1_000;
    server.timeout = idleMs;
    server.on('connection', (socket: Socket) => this.#unknown.add(socket));
    this.#server = server;
  }

  /** Its owner has shown a credential: strangers can't end this connection by opening many.
   * @param socket  of the request, which may be the TLS socket */
  identify(socket: Socket): void {
    const connection = this.#unknown.remove(peerOf(socket));
    if (connection !== undefined) this.#known.add(connection);
  }

  /** Changes the certificate for new connections.
   * @param endsConnections  whether those that are open end */
  renewTls(tls: TlsOptions, endsConnections: boolean): void {
    if (this.#server instanceof TlsServer) this.#server.setSecureContext(tls);
    if (endsConnections) this.#server.closeAllConnections();
  }

  /** Binds to the listen address given by a flag.
   * @param flag  name without "--", for errors
   * @returns the URL without a path, and a close() that also ends open connections
   * @throws UsageError when the port is in use or the address is not this machine's */
  async listen(
    flag: string,
    address: string,
  ): Promise<{ readonly url: string; readonly close: () => Promise<void> }> {
    const { host, port } = parseListenAddress(flag, address);
    const server = this.#server;
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
          for (const connections of [this.#unknown, this.#known]) connections.endAll();
        }),
    };
  }
}

/** Open connections within a limit. A new one is always taken and an old one is ended for it, so
 * that nobody can hold all places: a probe that asks at once is answered. */
class Connections {
  readonly #max: typeof MAX_CONNECTIONS;
  /** By peer; the oldest first. */
  readonly #open = new Map<string, Socket>();

  constructor(max: typeof MAX_CONNECTIONS) {
    this.#max = max;
  }

  add(socket: Socket): void {
    const peer = peerOf(socket);
    this.#open.set(peer, socket);
    socket.once('close', () => {
      if (this.#open.get(peer) === socket) this.#open.delete(peer);
    });
    const { remoteAddress } = socket;
    const own = [...this.#open.values()].filter((each) => each.remoteAddress === remoteAddress);
    const [oldest] = own.length > this.#max.perAddress ? own : this.#open.values();
    if (own.length > this.#max.perAddress || this.#open.size > this.#max.total) oldest?.destroy();
  }

  remove(peer: string): Socket | undefined {
    const socket = this.#open.get(peer);
    this.#open.delete(peer);
    return socket;
  }

  endAll(): void {
    for (const socket of this.#open.values()) socket.destroy();
  }
}

function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress ?? ''} ${remotePort ?? 0}`;
}

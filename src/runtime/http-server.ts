import { createServer, type RequestListener, type Server } from 'node:http';
import {
  createServer as createTlsServer,
  Server as TlsServer,
  type ServerOptions as TlsOptions,
} from 'node:https';
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

/** A header takes so many bytes at least. Node drops those beyond a number without a word. */
const MIN_HEADER_BYTES = 5;

/** An HTTP server whose sizes and times are limited. */
export class HttpServer {
  readonly #server: Server | TlsServer;

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
    this.#server = server;
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
          server.closeAllConnections();
        }),
    };
  }
}

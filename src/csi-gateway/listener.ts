import { createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import {
  createServer as createTlsServer,
  type SecureContextOptions,
  type Server as TlsServer,
  type TLSSocket,
} from 'node:tls';
import type { Address } from '../runtime/address.ts';
import type { TlsMaterial } from '../runtime/tls-files.ts';
import type { CallerConnections, ConnectionOrigin, ListenerTls } from './caller-connections.ts';
import { identifyCaller } from './identify-caller.ts';
import { InboundThrottle } from './inbound-throttle.ts';
import { listen } from './listen.ts';
import { NewSockets, plaintextLimits, tlsLimits } from '../runtime/new-sockets.ts';

const HANDSHAKE_MS = 5_000;
/** What all refused callers of a listener, and all callers of one in plaintext, may cost together,
 * in the units of FrameMeter: 1 % and 20 % of a CPU. */
const REFUSED_COST_PER_SECOND = 10_000;
const PLAINTEXT_COST_PER_SECOND = 200_000;

/** A connection on which HTTP/2 can begin. */
export interface NewConnection extends ConnectionOrigin {
  /** What to read from and write to: the socket, or the socket at a limited rate. */
  readonly stream: Duplex;
}

export interface ListenerOptions {
  readonly address: Address;
  /** undefined for plaintext. */
  readonly tls: ListenerTls | undefined;
  readonly callers: Pick<CallerConnections, 'rejectHandshake' | 'rejectSocket'>;
  readonly onConnection: (connection: NewConnection) => void;
}

/** Takes in the connections of one listen address. On TCP it limits new connections by network and
 * the rate at which it reads from callers without an allowed name. A unix socket has no limits: its
 * file's mode decides who may connect. */
export class Listener {
  readonly #options: ListenerOptions;
  readonly #server: Server;
  readonly #tlsServer: TlsServer | undefined;
  readonly #newSockets: NewSockets;
  readonly #throttle: InboundThrottle;

  constructor(options: ListenerOptions) {
    const { address, tls, callers } = options;
    this.#options = options;
    this.#newSockets = new NewSockets({
      limits: tls === undefined ? plaintextLimits : tlsLimits,
      begin: (socket) => this.#beginTcp(socket),
      onRefused: (socket) => callers.rejectSocket(socket),
    });
    const costPerSecond = tls === undefined ? PLAINTEXT_COST_PER_SECOND : REFUSED_COST_PER_SECOND;
    this.#throttle = new InboundThrottle(costPerSecond);
    this.#tlsServer = tls === undefined ? undefined : this.#createTlsServer(tls);
    const isUnix = address.kind === 'unix';
    this.#server = createServer({ noDelay: true, pauseOnConnect: !isUnix }, (socket) => {
      if (isUnix) this.#beginHttp2(socket);
      else this.#newSockets.add(socket);
    });
  }

  #createTlsServer(tls: ListenerTls): TlsServer {
    const server = createTlsServer({
      ...secureContext(tls.source.current),
      requestCert: true,
      rejectUnauthorized: true,
      ALPNProtocols: ['h2'],
      handshakeTimeout: HANDSHAKE_MS,
    });
    server.on('secureConnection', (socket) => this.#endHandshake(socket));
    server.on('tlsClientError', (error, socket) =>
      this.#options.callers.rejectHandshake(error.message, socket),
    );
    return server;
  }

  /** @returns where it listens
   * @throws UsageError as listen() in listen.ts does */
  listen(allowed: { readonly beyondLoopback: boolean }): Promise<Address> {
    return listen(this.#server, this.#options.address, allowed);
  }

  /** Uses these files for new connections. */
  setTls(material: TlsMaterial): void {
    this.#tlsServer?.setSecureContext(secureContext(material));
  }

  /** Stops listening, and ends the connections that have not begun HTTP/2.
   * @returns when all its connections have ended */
  close(): Promise<void> {
    this.#newSockets.endAll();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  #beginTcp(socket: Socket): void {
    if (this.#tlsServer === undefined) {
      this.#beginHttp2(socket);
    } else {
      this.#newSockets.addUnknown(socket);
      this.#tlsServer.emit('connection', socket);
    }
  }

  #endHandshake(socket: TLSSocket): void {
    this.#newSockets.identified(socket);
    if (socket.alpnProtocol === 'h2') return this.#beginHttp2(socket);
    this.#options.callers.rejectHandshake('it does not offer HTTP/2', socket);
    socket.destroy();
  }

  #beginHttp2(socket: Socket): void {
    const { tls, address, onConnection } = this.#options;
    const isTcp = address.kind === 'tcp';
    const caller = identifyCaller(socket, isTcp ? tls?.allowedNames : undefined);
    const isThrottled = isTcp && (tls === undefined || caller.refusal !== undefined);
    const throttled = isThrottled ? this.#throttle.wrap(socket) : undefined;
    onConnection({
      socket,
      stream: throttled ?? socket,
      caller,
      onProven: () => throttled?.prove(),
    });
  }
}

function secureContext({ ca, cert, key }: TlsMaterial): SecureContextOptions {
  return { ca, cert, key, minVersion: 'TLSv1.3' };
}

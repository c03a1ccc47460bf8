import { once } from 'node:events';
import {
  type AddressInfo,
  createServer,
  type ListenOptions,
  type Server,
  type Socket,
} from 'node:net';
import {
  createServer as createTlsServer,
  type SecureContextOptions,
  type Server as TlsServer,
  type TLSSocket,
} from 'node:tls';
import { type Address, formatAddress, isLoopback } from '../runtime/address.ts';
import {
  type CertificateName,
  findAllowedName,
  formatName,
  peerCertificate,
} from '../runtime/certificate-names.ts';
import { timerMs } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { claimSocketPath } from '../runtime/socket-file.ts';
import type { TlsMaterial, TlsSource } from '../runtime/tls-files.ts';
import type { TurnAway } from './turn-away.ts';

/** TLS of the listeners on TCP. */
export interface ListenerTls {
  readonly source: TlsSource;
  /** Names of the callers that may call. */
  readonly allowedNames: readonly CertificateName[];
}

export interface ListenerOptions {
  readonly address: Address;
  /** undefined for plaintext. */
  readonly tls: ListenerTls | undefined;
  /** Gets each connection of a caller that may call. */
  readonly onConnection: (socket: Socket) => void;
  readonly turnAway: TurnAway;
}

/** Connections that the kernel keeps until the gateway accepts them. */
const BACKLOG = 4_096;
/** Many times what ingest and jobs need. */
const MAX_CONNECTIONS = 256;
/** Connections of one address that have not ended their TLS handshake, which takes a caller some
 * milliseconds; a newer one takes the place of the oldest. */
const MAX_HANDSHAKES = 64;
const HANDSHAKE_MS = 5_000;

/** Takes in the connections of one listen address. With TLS a caller shows a certificate of the
 * authorities; one whose certificate has no allowed name is cut off where the handshake ends, and
 * an allowed one when its certificate ends. */
export class Listener {
  readonly #options: ListenerOptions;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Names of the callers with a certificate, by `address:port`; '' once the authorities that
   * identified them have been replaced. */
  readonly #names = new Map<string, string>();
  /** Connections before the end of their handshake, by address and port, oldest first. */
  readonly #handshakes = new Map<string, Map<number, Socket>>();

  constructor(options: ListenerOptions) {
    const { tls } = options;
    this.#options = options;
    this.#server =
      tls === undefined
        ? createServer({ noDelay: true }, (socket) => this.#accept(socket))
        : this.#createTlsServer(tls);
  }

  #createTlsServer({ source, allowedNames }: ListenerTls): TlsServer {
    const server = createTlsServer({
      ...secureContext(source.current),
      requestCert: true,
      rejectUnauthorized: true,
      ALPNProtocols: ['h2'],
      handshakeTimeout: HANDSHAKE_MS,
      noDelay: true,
    });
    server.on('connection', (socket: Socket) => this.#beginHandshake(socket));
    server.on('secureConnection', (socket) => this.#identify(socket, allowedNames));
    server.on('tlsClientError', (error, socket) => {
      this.#options.turnAway('handshake', socket.remoteAddress, error.message);
      socket.destroy();
    });
    return server;
  }

  /** The name by which the caller at `address:port` may call: '' if it has to shake hands anew,
   * undefined where callers show none. */
  nameOf(peer: string): string | undefined {
    return this.#names.get(peer);
  }

  #beginHandshake(socket: Socket): void {
    const { remoteAddress = '', remotePort = 0 } = socket;
    const handshakes = this.#handshakes.get(remoteAddress) ?? new Map<number, Socket>();
    this.#handshakes.set(remoteAddress, handshakes.set(remotePort, socket));
    socket.once('close', () => this.#endHandshake(remoteAddress, remotePort));
    if (handshakes.size <= MAX_HANDSHAKES) return;
    const [oldest] = handshakes.values();
    this.#options.turnAway(
      'handshake',
      remoteAddress,
      `${MAX_HANDSHAKES} handshakes were under way`,
    );
    oldest?.destroy();
  }

  #endHandshake(address: string, port: number): void {
    const handshakes = this.#handshakes.get(address);
    handshakes?.delete(port);
    if (handshakes?.size === 0) this.#handshakes.delete(address);
  }

  #identify(socket: TLSSocket, allowed: readonly CertificateName[]): void {
    const refuse = (reason: 'handshake' | 'name', why: string): void => {
      this.#options.turnAway(reason, socket.remoteAddress, why);
      socket.destroy();
    };
    // As grpc-js names the other side of a connection.
    const peer = `${socket.remoteAddress}:${socket.remotePort}`;
    this.#endHandshake(socket.remoteAddress ?? '', socket.remotePort ?? 0);
    if (socket.alpnProtocol !== 'h2') return refuse('handshake', 'it does not offer HTTP/2');
    const { names, endMs } = peerCertificate(socket) ?? { names: [], endMs: 0 };
    const name = findAllowedName(names, allowed);
    if (name === undefined) {
      const all = names.map(formatName).join(', ').slice(0, 500) || 'no name';
      return refuse('name', `its certificate has ${all}, which --tls-allowed-names does not list`);
    }
    this.#names.set(peer, formatName(name));
    // A caller connects again when it has renewed its certificate, which it does before the end.
    const leftMs = timerMs(endMs - Date.now());
    const timer = setTimeout(() => socket.destroy(), leftMs);
    socket.once('close', () => {
      clearTimeout(timer);
      this.#names.delete(peer);
    });
    this.#accept(socket);
  }

  #accept(socket: Socket): void {
    if (this.#sockets.size >= MAX_CONNECTIONS) {
      this.#options.turnAway(
        'too-many',
        socket.remoteAddress,
        `there are ${MAX_CONNECTIONS} already`,
      );
      return void socket.destroy();
    }
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    // grpc-js hears of it too, and ends the calls.
    socket.on('error', () => undefined);
    this.#options.onConnection(socket);
  }

  /** @returns where it listens
   * @throws UsageError as listen() below does */
  listen(allowed: { readonly beyondLoopback: boolean }): Promise<Address> {
    return listen(this.#server, this.#options.address, allowed);
  }

  /** Uses these files for new connections.
   * @param isNewAuthority  whether callers may call only after they have shaken hands anew */
  setTls(material: TlsMaterial, isNewAuthority: boolean): void {
    if (!('setSecureContext' in this.#server)) return;
    (this.#server as TlsServer).setSecureContext(secureContext(material));
    if (isNewAuthority) for (const peer of this.#names.keys()) this.#names.set(peer, '');
  }

  /** Stops listening.
   * @returns when all its connections have ended */
  close(): Promise<void> {
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  endConnections(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}

function secureContext({ ca, cert, key }: TlsMaterial): SecureContextOptions {
  return { ca, cert, key, minVersion: 'TLSv1.3' };
}

/** Makes a server listen on TCP, or on a unix socket with mode 0600. The socket file of a dead
 * process is replaced; one that accepts connections is in use.
 * @param allowed.beyondLoopback  whether TCP addresses beyond loopback may be used
 * @returns  the address; port 0 is replaced by the real one
 * @throws   UsageError: the address is in use, not allowed, not of this machine, or not a socket */
export async function listen(
  server: Server,
  address: Address,
  allowed = { beyondLoopback: false },
): Promise<Address> {
  const flag = `--listen ${formatAddress(address)}`;
  if (address.kind === 'tcp') {
    const { host, port } = address;
    if (!allowed.beyondLoopback && !isLoopback(host))
      throw new UsageError(
        `${flag}: without TLS the gateway listens on loopback only; give --tls-cert, --tls-key, ` +
          '--tls-client-ca and --tls-allowed-names, or --insecure',
      );
    // Without a host, Node listens on all IPv4 and IPv6 addresses, and also on machines without
    // IPv6.
    await bind(server, host === '::' ? { port } : { host, port }, flag);
    return { kind: 'tcp', host, port: (server.address() as AddressInfo).port };
  }
  await claimSocketPath(flag, address.path);
  // With this mask the socket has mode 0600 from the start. A chmod would come too late for
  // connections right after bind, and follow a link that was put in the socket's place.
  const mask = process.umask(0o177);
  const bound = bind(server, { path: address.path }, flag);
  process.umask(mask);
  await bound;
  return address;
}

async function bind(server: Server, options: ListenOptions, flag: string): Promise<void> {
  server.listen({ ...options, backlog: BACKLOG });
  try {
    await once(server, 'listening');
  } catch (error) {
    const cause = error as NodeJS.ErrnoException;
    const isInUse = cause.code === 'EADDRINUSE';
    const reason = isInUse ? 'the port is in use; stop its owner or choose another' : cause.message;
    throw new UsageError(`${flag}: ${reason}`, { cause });
  }
}

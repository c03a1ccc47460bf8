import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import {
  createServer as createTlsServer,
  type SecureContextOptions,
  type TLSSocket,
} from 'node:tls';
import { type Address, formatAddress, isLoopback } from '../runtime/address.ts';
import { peerCertificate } from '../runtime/certificate-names.ts';
import { UsageError } from '../runtime/flags.ts';
import { type Logger, RareWarnings } from '../runtime/log.ts';
import { bind, claimSocketPath } from '../runtime/socket-file.ts';
import type { TlsMaterial, TlsSource } from '../runtime/tls-files.ts';

/** TLS of the listeners on TCP. */
export interface ListenerTls {
  readonly source: TlsSource;
  /** Names of the allowed callers, as parseAllowedNames returns them. */
  readonly allowedNames: readonly string[];
}

/** The caller that a connection's certificate names. */
export interface Caller {
  /** In the notation of --tls-allowed-names. */
  readonly name: string;
  /** When the certificate ends, Unix ms. */
  readonly endMs: number;
}

const HANDSHAKE_MS = 5_000;

/** Creates the server for one listen address. With TLS a caller must have a certificate of the
 * authorities; if it has no allowed name, the connection ends after the handshake.
 * @param accept  gets each connection of an allowed caller; without TLS the caller is unknown */
export function createListener(
  tls: ListenerTls | undefined,
  accept: (socket: Socket, caller?: Caller) => void,
  log: Logger,
): Server {
  if (tls === undefined) return createServer({ noDelay: true }, (socket) => accept(socket));
  const server = createTlsServer({
    ...secureContext(tls.source.current),
    requestCert: true,
    rejectUnauthorized: true,
    ALPNProtocols: ['h2'],
    handshakeTimeout: HANDSHAKE_MS,
    noDelay: true,
  });
  const warnings = new RareWarnings(log);
  const turnAway = (socket: TLSSocket, reason: string): void => {
    warnings.warn({ from: socket.remoteAddress, reason }, 'refused a caller');
    socket.destroy();
  };
  server.on('tlsClientError', (error, socket) => turnAway(socket, error.message));
  server.on('secureConnection', (socket) => {
    const caller = identify(socket, tls.allowedNames);
    if (typeof caller === 'string') turnAway(socket, caller);
    else accept(socket, caller);
  });
  const stop = tls.source.onChange((next) => server.setSecureContext(secureContext(next)));
  server.once('close', stop);
  return server;
}

/** Identifies the caller of a connection, or says why it may not call. */
function identify(socket: TLSSocket, allowed: readonly string[]): Caller | string {
  if (socket.alpnProtocol !== 'h2') return 'it does not offer HTTP/2';
  const { names, endMs } = peerCertificate(socket);
  const name = names.find((each) => allowed.includes(each));
  if (name !== undefined) return { name, endMs };
  const all = names.join(', ').slice(0, 500) || 'no name';
  return `--tls-allowed-names lists no name of its certificate (${all})`;
}

function secureContext({ ca, cert, key }: TlsMaterial): SecureContextOptions {
  return { ca, cert, key, minVersion: 'TLSv1.3' };
}

/** Makes a server listen on TCP, or on a unix socket with mode 0600. Replaces the socket file of a
 * dead process; a socket that accepts connections is in use.
 * @param allowed.beyondLoopback  whether TCP addresses beyond loopback are allowed
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
  // With this mask the socket has mode 0600 from the start. A chmod would be too late for
  // connections right after bind, and would follow a link in the socket's place.
  const mask = process.umask(0o177);
  const bound = bind(server, { path: address.path }, flag);
  process.umask(mask);
  await bound;
  return address;
}

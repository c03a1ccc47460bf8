import { once } from 'node:events';
import type { AddressInfo, ListenOptions, Server } from 'node:net';
import { type Address, formatAddress, isLoopback } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';
import { claimSocketPath } from '../runtime/socket-file.ts';

/** Connections that the kernel keeps until the gateway accepts them; those of a flood must not make
 * it drop others. It keeps no more than net.core.somaxconn says. */
const BACKLOG = 4_096;

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

/** @throws UsageError */
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

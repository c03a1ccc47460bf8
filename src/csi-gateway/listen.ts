import { chmod } from 'node:fs/promises';
import type { AddressInfo, Server } from 'node:net';
import { claimSocketPath } from '../runtime/socket-file.ts';
import { formatAddress, isLoopback, type Address } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';

/** Makes a server listen: on a unix socket that only its owner may open (0600), or on TCP.
 * A socket file whose process is dead is replaced; one that answers is somebody's.
 * @param may   beyondLoopback: TCP on other addresses too, since callers must show certificates, or
 *              somebody insists
 * @returns     where it listens; port 0 has become a real one
 * @throws      UsageError: in use, not loopback, not this machine's, no such folder, not a socket
 */
export async function listen(
  server: Server,
  address: Address,
  may = { beyondLoopback: false },
): Promise<Address> {
  const flag = `--listen ${formatAddress(address)}`;
  if (address.kind === 'tcp') {
    if (!may.beyondLoopback && !isLoopback(address.host)) {
      throw new UsageError(
        `${flag}: without TLS the gateway listens on loopback only; give --tls-cert, --tls-key, --tls-client-ca and --tls-allowed-names, or --insecure`,
      );
    }
    // Without a host, node takes every IPv4 and IPv6 address, or every IPv4 address on a machine
    // without IPv6.
    await bind(
      server,
      address.host === '::' ? { port: address.port } : { host: address.host, port: address.port },
      flag,
    );
    return { kind: 'tcp', host: address.host, port: (server.address() as AddressInfo).port };
  }
  await claimSocketPath(flag, address.path);
  // From its first moment on: what a mask leaves between bind and chmod, somebody could use.
  const mask = process.umask(0o177);
  const bound = bind(server, { path: address.path }, flag);
  process.umask(mask);
  await bound;
  await chmod(address.path, 0o600);
  return address;
}

function bind(
  server: Server,
  where: { path: string } | { host?: string; port: number },
  flag: string,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const failed = (cause: NodeJS.ErrnoException): void => {
      const why =
        cause.code === 'EADDRINUSE'
          ? 'the port is in use; stop its owner or choose another'
          : cause.message;
      reject(new UsageError(`${flag}: ${why}`, { cause }));
    };
    server.once('error', failed);
    server.listen(where, () => {
      server.removeListener('error', failed);
      resolve();
    });
  });
}

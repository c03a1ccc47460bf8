import { lstat, mkdir, unlink } from 'node:fs/promises';
import { once } from 'node:events';
import { connect, type ListenOptions, type Server } from 'node:net';
import { dirname } from 'node:path';
import { messageOf } from './error-message.ts';
import { UsageError } from './flags.ts';

/** Prepares the path of a unix socket: creates its folder, and removes the socket file of a process
 * that has ended.
 * @param flag  the flag with its value, for errors
 * @throws      UsageError if a process listens there, or the file is not a socket */
export async function claimSocketPath(flag: string, path: string): Promise<void> {
  try {
    await mkdir(dirname(path), { recursive: true });
    const stats = await lstat(path).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    });
    if (stats === undefined) return;
    if (!stats.isSocket())
      throw new UsageError(
        `${flag}: the file exists and is not a socket; remove it or choose another path`,
      );
    if (await isInUse(path))
      throw new UsageError(`${flag}: the socket is in use; stop its owner or choose another path`);
    await unlink(path);
  } catch (cause) {
    if (cause instanceof UsageError) throw cause;
    throw new UsageError(`${flag}: ${messageOf(cause)}`, { cause });
  }
}

/** Whether a process listens on a socket file. False only if the connection is refused or the file
 * is missing: every other failure counts as in use. */
export function isInUse(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', (error: NodeJS.ErrnoException) =>
      resolve(error.code !== 'ECONNREFUSED' && error.code !== 'ENOENT'),
    );
  });
}

/** Connections that the kernel keeps until the process accepts them. */
const BACKLOG = 4_096;

/** Makes a server listen. If it can't accept a later connection, for example for lack of memory,
 * only that connection is lost.
 * @param flag  the flag with its value, for errors
 * @throws      UsageError if the address is in use, or not this machine's */
export async function bind(server: Server, options: ListenOptions, flag: string): Promise<void> {
  server.listen({ ...options, backlog: BACKLOG });
  try {
    await once(server, 'listening');
  } catch (error) {
    const cause = error as NodeJS.ErrnoException;
    const isInUse = cause.code === 'EADDRINUSE';
    const reason = isInUse ? 'the port is in use; stop its owner or choose another' : cause.message;
    throw new UsageError(`${flag}: ${reason}`, { cause });
  }
  server.on('error', () => undefined);
}

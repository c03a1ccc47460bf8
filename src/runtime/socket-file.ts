import { lstat, mkdir, unlink } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname } from 'node:path';
import { UsageError } from './flags.ts';

/** Makes way for a unix socket: its folder is created, and a socket file that a dead process left
 * is removed.
 * @param flag  named in the error, with its value
 * @throws      UsageError if a process answers there, or the file is something else */
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
    if (await answers(path))
      throw new UsageError(`${flag}: the socket is in use; stop its owner or choose another path`);
    await unlink(path);
  } catch (cause) {
    if (cause instanceof UsageError) throw cause;
    throw new UsageError(`${flag}: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    });
  }
}

/** Whether a process is behind a socket file. A refused connection proves that there is none; any
 * other failure might be one. */
function answers(path: string): Promise<boolean> {
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

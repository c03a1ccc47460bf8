import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { UsageError } from './flags.ts';

/** A data folder that only one process uses at a time. */
export interface DataFolder {
  readonly path: string;
  /** A folder for sockets. It is inside the data folder, or temporary where that path would exceed
   * the kernel's limit of 107 bytes. */
  readonly sockets: string;
  /** Removes the sockets and frees the folder for the next process. */
  close(): Promise<void>;
}

/** Longest name of a socket in `sockets`. */
const SOCKET_NAME_BYTES = 16;
const SOCKET_PATH_BYTES = 107;
const LOCK = 'pid';

/** Creates the folder where it is missing, readable by its owner only, and locks it.
 * @param flag  the flag that the error names
 * @param kind  the process whose data it contains; a folder with other contents is refused
 * @throws UsageError if the folder contains something else, or another process uses it */
export async function openDataFolder(
  flag: string,
  path: string,
  kind: string,
): Promise<DataFolder> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  await claimKind(flag, path, kind);
  await chmod(path, 0o700);
  await lock(flag, path);
  const inside = join(path, 'sockets');
  const fits = Buffer.byteLength(inside) + 1 + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES;
  const sockets = fits ? inside : await mkdtemp(join(tmpdir(), 'sutler-'));
  await mkdir(sockets, { recursive: true, mode: 0o700 });
  return {
    path,
    sockets,
    async close() {
      await rm(sockets, { recursive: true, force: true });
      await rm(join(path, LOCK), { force: true });
    },
  };
}

/** Removes the data of earlier runs; keeps the lock, the folder's kind and the sockets. */
export async function emptyDataFolder(folder: DataFolder): Promise<void> {
  for (const name of await readdir(folder.path)) {
    if (name !== LOCK && name !== 'sockets' && !name.startsWith('.sutler-'))
      await rm(join(folder.path, name), { recursive: true, force: true });
  }
}

async function claimKind(flag: string, path: string, kind: string): Promise<void> {
  const mark = `.sutler-${kind}`;
  const names = await readdir(path);
  if (names.includes(mark)) return;
  if (names.length > 0) {
    throw new UsageError(
      `--${flag}: ${path} contains other files; ` +
        `name an empty folder, or one that an earlier sutler ${kind} made`,
    );
  }
  await writeFile(join(path, mark), `data of sutler ${kind}\n`);
}

async function lock(flag: string, path: string): Promise<void> {
  const file = join(path, LOCK);
  for (let tries = 0; tries < 2; tries += 1) {
    try {
      return await writeFile(file, `${process.pid}\n`, { flag: 'wx', mode: 0o600 });
    } catch (error) {
      if (!hasCode(error, 'EEXIST')) throw error;
    }
    const owner = Number((await readFile(file, 'utf8').catch(() => '')).trim());
    if (owner > 0 && isAlive(owner))
      throw new UsageError(
        `--${flag}: ${path} is in use by process ${owner}; stop it, or name another folder`,
      );
    await rm(file, { force: true });
  }
  throw new UsageError(`--${flag}: ${path} could not be taken; another process is starting there`);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // A process of another user is alive too.
    return hasCode(error, 'EPERM');
  }
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}

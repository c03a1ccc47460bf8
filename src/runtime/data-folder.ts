import { constants, type Stats } from 'node:fs';
import { lstat, mkdir, mkdtemp, open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { messageOf } from './error-message.ts';
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

/** Creates the folder where it is missing, readable by its owner only, and locks it. Follows no
 * link in place of the folder or of a file in it, and takes no folder that others may write to:
 * what it contains is believed, and deleted.
 * @param flag  the flag that the error names
 * @param kind  the process whose data it contains; a folder with other contents is refused
 * @throws UsageError if the folder is not private to this user, contains something else, or is in
 *   use by another process */
export async function openDataFolder(
  flag: string,
  path: string,
  kind: string,
): Promise<DataFolder> {
  const where = `--${flag}: ${path}`;
  await takeFolder(where, path);
  await claimKind(where, path, kind);
  await lock(where, path);
  const inside = join(path, 'sockets');
  // What a killed process left there; nobody else uses it, since this process has the lock.
  await rm(inside, { recursive: true, force: true });
  const fits = Buffer.byteLength(inside) + 1 + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES;
  if (fits) await mkdir(inside, { mode: 0o700 });
  const sockets = fits ? inside : await mkdtemp(join(tmpdir(), 'sutler-'));
  return {
    path,
    sockets,
    async close() {
      await rm(sockets, { recursive: true, force: true });
      await rm(join(path, LOCK), { force: true });
    },
  };
}

/** Removes the data of earlier runs; keeps the lock, the folder's kind and the sockets. Links are
 * removed, not followed. */
export async function emptyDataFolder(folder: DataFolder): Promise<void> {
  for (const name of await readdir(folder.path)) {
    if (name !== LOCK && name !== 'sockets' && !name.startsWith('.sutler-'))
      await rm(join(folder.path, name), { recursive: true, force: true });
  }
}

/** Creates the folder, or checks that the existing one is this user's alone and lets nobody else
 * read it. */
async function takeFolder(where: string, path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 }).catch((error: unknown) => {
    // A link that leads nowhere, or a file: described below.
    if (!hasCode(error, 'EEXIST') && !hasCode(error, 'ENOENT')) throw error;
  });
  refuseLink(where, await lstat(path));
  const handle = await open(path, constants.O_DIRECTORY | constants.O_NOFOLLOW).catch(
    (cause: unknown) => {
      throw new UsageError(`${where} can't be opened as a folder (${messageOf(cause)})`, { cause });
    },
  );
  try {
    const stats = await handle.stat();
    refuseForeign(where, stats);
    if ((stats.mode & 0o022) !== 0)
      throw new UsageError(
        `${where} may be written to by other users; ` +
          'remove that right (chmod go-w), or name a folder that does not exist yet',
      );
    if ((stats.mode & 0o077) !== 0) await handle.chmod(0o700);
  } finally {
    await handle.close();
  }
}

function refuseLink(where: string, stats: Stats): void {
  if (stats.isSymbolicLink())
    throw new UsageError(`${where} is a symbolic link; name the folder itself, or remove the link`);
}

function refuseForeign(where: string, { uid }: Stats): void {
  const own = process.geteuid?.();
  if (own !== undefined && uid !== own)
    throw new UsageError(
      `${where} belongs to user ${uid}, and this process runs as user ${own}; ` +
        'name a folder of its own, for example one in it that does not exist yet',
    );
}

/** @returns undefined if there is no such file
 * @throws UsageError for a link, and for a file of another user */
async function checkFile(where: string, path: string): Promise<Stats | undefined> {
  const stats = await lstat(path).catch((error: unknown) => {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw error;
  });
  if (stats === undefined) return undefined;
  const file = `${where}: its file ${basename(path)}`;
  refuseLink(file, stats);
  refuseForeign(file, stats);
  return stats;
}

async function claimKind(where: string, path: string, kind: string): Promise<void> {
  const mark = `.sutler-${kind}`;
  if ((await checkFile(where, join(path, mark))) !== undefined) return;
  if ((await readdir(path)).length > 0) {
    throw new UsageError(
      `${where} contains other files; ` +
        `name an empty folder, or one that an earlier sutler ${kind} made`,
    );
  }
  // With "x" nothing is written through a link that appears meanwhile.
  await writeFile(join(path, mark), `data of sutler ${kind}\n`, { flag: 'wx', mode: 0o600 });
}

async function lock(where: string, path: string): Promise<void> {
  const file = join(path, LOCK);
  for (let tries = 0; tries < 2; tries += 1) {
    try {
      return await writeFile(file, `${process.pid}\n`, { flag: 'wx', mode: 0o600 });
    } catch (error) {
      if (!hasCode(error, 'EEXIST')) throw error;
    }
    await checkFile(where, file);
    const owner = Number((await readFile(file, 'utf8').catch(() => '')).trim());
    if (owner > 0 && isAlive(owner))
      throw new UsageError(
        `${where} is in use by process ${owner}; stop it, or name another folder`,
      );
    await rm(file, { force: true });
  }
  throw new UsageError(`${where} could not be taken; another process is starting there`);
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

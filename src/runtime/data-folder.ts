import { chmod, mkdir, mkdtemp, open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { UsageError } from './flags.ts';

/** A folder that one process owns while it runs. */
export interface DataFolder {
  readonly path: string;
  /** A folder for sockets: inside where the path is short enough, since the kernel takes 107 bytes,
   * else a temporary one that close() removes. */
  readonly sockets: string;
  close(): Promise<void>;
}

/** Longest socket name that is put below `sockets`. */
const SOCKET_NAME_BYTES = 16;
const SOCKET_PATH_BYTES = 107;
const LOCK = 'pid';

/** Makes the folder if needed, readable by its owner only, and takes it.
 * @param kind  what keeps its data there: a folder of another kind is refused
 * @throws UsageError when it belongs to something else, or another process has it */
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

/** Removes what an earlier run left, but for the marks of the folder itself. */
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
      `--${flag}: ${path} holds other things; name an empty folder, or one that an earlier sutler ${kind} made`,
    );
  }
  await writeFile(join(path, mark), `data of sutler ${kind}\n`);
}

async function lock(flag: string, path: string): Promise<void> {
  const file = join(path, LOCK);
  for (let tries = 0; tries < 2; tries += 1) {
    try {
      const handle = await open(file, 'wx', 0o600);
      await handle.writeFile(`${process.pid}\n`);
      return await handle.close();
    } catch (error) {
      if (!(error instanceof Error) || !('code' in error) || error.code !== 'EEXIST') throw error;
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
    // Somebody else's process is alive too.
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

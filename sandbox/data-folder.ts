import { lstat, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '#src/runtime/error-message.ts';
import { UsageError } from '#src/runtime/flags.ts';

/** This file shows that an earlier sandbox made the folder. */
const MARK = '.sutler-sandbox';
/** This file has the process id of the sandbox that uses the folder. */
const LOCK = 'pid';

/** Makes the sandbox's folder, or removes what an earlier sandbox left in it (links too, without
 * following them). After that only this user can enter it, and no second sandbox can use it.
 * @returns frees the folder for the next sandbox
 * @throws UsageError if other users can enter it, it has other contents, or it is in use */
export async function takeDataFolder(path: string): Promise<() => Promise<void>> {
  await mkdir(path, { recursive: true, mode: 0o700 }).catch((error: unknown) =>
    refuse(path, `can't be made (${messageOf(error)})`),
  );
  await checkOwner(path);
  const names = await readdir(path);
  if (names.length > 0 && !names.includes(MARK))
    refuse(path, 'contains other files; name an empty folder, or one that an earlier sandbox made');
  const user = names.includes(LOCK) ? Number(await readFile(join(path, LOCK), 'utf8')) : 0;
  if (user > 0 && isAlive(user))
    refuse(path, `is in use by process ${user}; stop it, or name another folder`);
  for (const name of names)
    if (name !== MARK) await rm(join(path, name), { recursive: true, force: true });
  await writeFile(join(path, MARK), 'data of sutler sandbox\n', { mode: 0o600 });
  await writeFile(join(path, LOCK), `${process.pid}\n`, { flag: 'wx', mode: 0o600 });
  return () => rm(join(path, LOCK), { force: true });
}

function refuse(path: string, why: string): never {
  throw new UsageError(`--data-dir: ${path} ${why}`);
}

async function checkOwner(path: string): Promise<void> {
  const stats = await lstat(path);
  if (!stats.isDirectory()) refuse(path, 'is no folder, or a link: name the folder itself');
  const own = process.geteuid?.() ?? stats.uid;
  if (stats.uid !== own)
    refuse(path, `belongs to user ${stats.uid}, and this process runs as ${own}: name another`);
  if ((stats.mode & 0o077) !== 0)
    refuse(path, 'is open to other users: run chmod go=, or name one that does not exist yet');
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // A process of another user is alive too.
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

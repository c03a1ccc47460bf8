import { lstat, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseJson } from './json.ts';

/** Texts of flags, by name, as the command line has them. */
export type GivenFlags = Readonly<Record<string, readonly string[]>>;

/** The folder of `sutler all`, as mkdtemp names it; that of its gateway is longer. */
export const OWN_FOLDER = /^sutler-\w{6}$/;

type Environment = Readonly<Record<string, string | undefined>>;

/** Where `sutler all` makes its folder, in turn: a container may have a read-only file system, but
 * /dev/shm is in memory. */
export function ownPlaces({ TMPDIR }: Environment): readonly string[] {
  return [TMPDIR || tmpdir(), '/dev/shm'];
}

/** In it, that of its own Redis. */
export const OWN_REDIS_SOCKET = 'redis.sock';
const FLAGS_FILE = 'flags.json';

/** A `sutler all` that runs. */
export interface OwnSutler {
  readonly pid: number;
  /** Address of its Redis, without a login. */
  readonly redis: string;
  /** Its arguments, and what it has chosen itself. */
  readonly given: GivenFlags;
}

/** Writes into the folder of `sutler all` which flags it has, so that commands in its container
 * reach what it reaches. Only this user can read them. */
export async function writeOwnSutler(folder: string, own: OwnSutler): Promise<void> {
  await writeFile(join(folder, FLAGS_FILE), JSON.stringify(own), { mode: 0o600 });
}

/** The `sutler all` of this user that runs on this machine, of several the one that was started
 * last; undefined: there is none. */
export async function findOwnSutler(env: Environment): Promise<OwnSutler | undefined> {
  for (const place of ownPlaces(env)) {
    const names = await readdir(place).catch(() => []);
    const folders = names.filter((name) => OWN_FOLDER.test(name));
    const read = await Promise.all(folders.map((name) => readOwnSutler(join(place, name))));
    const running = read.filter((each) => each !== undefined && isRunning(each.pid));
    const [last] = running.sort((a, b) => (b?.atMs ?? 0) - (a?.atMs ?? 0));
    if (last !== undefined) return last;
  }
  return undefined;
}

/** @returns undefined for a folder in which others may write, or of a process that starts */
async function readOwnSutler(
  folder: string,
): Promise<(OwnSutler & { readonly atMs: number }) | undefined> {
  const path = join(folder, FLAGS_FILE);
  try {
    if (!(await isPrivate(folder))) return undefined;
    const { mtimeMs: atMs } = await stat(path);
    return { ...(parseJson(await readFile(path, 'utf8')) as OwnSutler), atMs };
  } catch {
    return undefined;
  }
}

/** Whether it is a folder of this user, and no one else may write in it: in a temporary folder,
 * others can make one of the same name, to have commands go where they want. */
async function isPrivate(folder: string): Promise<boolean> {
  const found = await lstat(folder);
  return found.isDirectory() && found.uid === process.getuid?.() && (found.mode & 0o022) === 0;
}

/** Whether a folder has the flags of a process that is gone. In a container that was started again,
 * the process before had the same id.
 * @param ownPid  of this process, which has none there */
export async function isLeftBehind(folder: string, ownPid: number): Promise<boolean> {
  const found = await readOwnSutler(folder);
  return found !== undefined && (found.pid === ownPid || !isRunning(found.pid));
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

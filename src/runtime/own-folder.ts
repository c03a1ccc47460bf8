import { lstat, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseJson } from './json.ts';

/** The texts of flags on the command line, by name. */
export type GivenFlags = Readonly<Record<string, readonly string[]>>;

/** Name of the folder of `sutler all`, from mkdtemp. Its gateway's folder has a longer name. */
export const OWN_FOLDER = /^sutler-\w{6}$/;

type Environment = Readonly<Record<string, string | undefined>>;

/** Lists the places in which `sutler all` tries to make its folder. /dev/shm is in memory, and
 * works in a container with a read-only file system. */
export function ownPlaces({ TMPDIR }: Environment): readonly string[] {
  return [TMPDIR || tmpdir(), '/dev/shm'];
}

/** Socket of its own Redis, in that folder. */
export const OWN_REDIS_SOCKET = 'redis.sock';
const FLAGS_FILE = 'flags.json';

/** A running `sutler all`. */
export interface OwnSutler {
  readonly pid: number;
  /** Address of its Redis, without a login. */
  readonly redis: string;
  /** Its arguments, and the values that it chose itself. */
  readonly given: GivenFlags;
}

/** Writes the flags of `sutler all` into its folder, so that commands in its container use the same
 * Redis and cluster. Only this user can read the file. */
export async function writeOwnSutler(folder: string, own: OwnSutler): Promise<void> {
  await writeFile(join(folder, FLAGS_FILE), JSON.stringify(own), { mode: 0o600 });
}

/** Finds this user's running `sutler all` on this machine: of several the one that started last;
 * undefined if there is none. */
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

/** @returns undefined if others may write in the folder, or its process is still starting */
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

/** Whether it is a folder in which only this user may write. In a temporary folder, others can make
 * one of the same name and so redirect commands. */
async function isPrivate(folder: string): Promise<boolean> {
  const found = await lstat(folder);
  return found.isDirectory() && found.uid === process.getuid?.() && (found.mode & 0o022) === 0;
}

/** Whether a folder has the flags of a process that has ended. After a restart of the container,
 * the earlier process had the same id as this one.
 * @param ownPid  of this process, which has not written its flags yet */
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

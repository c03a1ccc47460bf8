import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { copyFile, mkdtemp, readFile, rm, rmdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const MiB = 1024 * 1024;

/** A memory cgroup that programs of one round run in. */
export interface Cgroup {
  /** What to start, so that the program runs in the cgroup and the memory of its file counts. */
  command(file: string, args: readonly string[]): Promise<readonly string[]>;
  /** Memory as a kubelet counts it: without files that the kernel may forget first. */
  workingSetBytes(): Promise<number>;
  peakBytes(): Promise<number>;
  /** How many processes the kernel has killed because the limit was reached. */
  kills(): Promise<number>;
  /** Removes it; its programs have ended. */
  close(): Promise<void>;
}

const NONE: Cgroup = {
  command: (file, args) => Promise.resolve([file, ...args]),
  workingSetBytes: () => Promise.resolve(0),
  peakBytes: () => Promise.resolve(0),
  kills: () => Promise.resolve(0),
  close: () => Promise.resolve(),
};

/** Makes a cgroup, of version 1 or 2.
 * @param parent    folder of a memory cgroup; '' for none
 * @param limitMib  0 for none */
export async function openCgroup(parent: string, limitMib: number): Promise<Cgroup> {
  if (parent === '') return NONE;
  const group = await mkdtemp(join(parent, 'sutler-bench-'));
  const isV2 = await readFile(join(group, 'memory.current')).then(Boolean, () => false);
  const read = async (name: string): Promise<string> => readFile(join(group, name), 'utf8');
  if (limitMib > 0) {
    const name = isV2 ? 'memory.max' : 'memory.limit_in_bytes';
    await writeFile(join(group, name), String(limitMib * MiB));
  }
  const folder = await mkdtemp(join(tmpdir(), 'sutler-program-'));
  return {
    command: async (file, args) => {
      const copy = join(folder, basename(file));
      if (!existsSync(copy)) {
        await copyFile(file, copy);
        await forget(copy);
      }
      return [
        'sh',
        '-c',
        'echo $$ > "$0" && exec "$@"',
        join(group, 'cgroup.procs'),
        copy,
        ...args,
      ];
    },
    workingSetBytes: async () => {
      const usage = await read(isV2 ? 'memory.current' : 'memory.usage_in_bytes');
      const name = isV2 ? 'inactive_file' : 'total_inactive_file';
      const stat = await read('memory.stat');
      const inactive = new RegExp(`^${name} (\\d+)`, 'm').exec(stat)?.[1] ?? 0;
      return Number(usage) - Number(inactive);
    },
    peakBytes: async () => Number(await read(isV2 ? 'memory.peak' : 'memory.max_usage_in_bytes')),
    kills: async () => {
      const events = await read(isV2 ? 'memory.events' : 'memory.oom_control');
      return Number(/^oom_kill (\d+)/m.exec(events)?.[1]);
    },
    close: async () => {
      await rmdir(group);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Drops a file from the page cache: the next reader is the one whose memory it counts as. */
async function forget(file: string): Promise<void> {
  await run('sync', [file]);
  await run('dd', [`if=${file}`, 'iflag=nocache', 'count=0']);
}

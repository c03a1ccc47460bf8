import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Creates a temporary folder for sockets and data. Its path is short, because that of a socket may
 * have 107 bytes at most. */
export async function makeFolder(): Promise<{
  readonly path: string;
  file(name: string): string;
  remove(): Promise<void>;
}> {
  const path = await mkdtemp(join(tmpdir(), 'sutler-'));
  return {
    path,
    file: (name) => join(path, name),
    remove: () => rm(path, { recursive: true, force: true }),
  };
}

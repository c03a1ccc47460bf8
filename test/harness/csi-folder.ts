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

/** Waits until a condition is truthy.
 * @param what  describes it, for the error */
export async function until(
  what: string,
  condition: () => unknown,
  timeoutMs = 30_000,
): Promise<void> {
  const deadlineMs = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > deadlineMs) throw new Error(`timed out after ${timeoutMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A fresh folder for sockets and data; short, since a socket path may have 107 bytes. */
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

/** Waits until something holds. Fails with what was waited for. */
export async function until(what: string, holds: () => unknown, timeoutMs = 30_000): Promise<void> {
  const deadlineMs = Date.now() + timeoutMs;
  while (!(await holds())) {
    if (Date.now() > deadlineMs) throw new Error(`waited ${timeoutMs} ms in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

import { readFile } from 'node:fs/promises';

/** How old a file's content may be when a request needs it: tokens are replaced well before they
 * expire. */
export const REREAD_AFTER_MS = 30_000;

/** A file whose content may be replaced at any time: token, CA, certificate, key. */
export interface CredentialFile {
  readonly path: string;
  /** Latest content that could be read, trimmed; read again if older than REREAD_AFTER_MS. */
  read(): Promise<string>;
  /** Makes the next read go to the disk. */
  expire(): void;
}

/** Reads the file once, now; later failures keep the last good content.
 * @throws the file system's error, or one that says the file is empty */
export async function openCredentialFile(
  path: string,
  nowMs: () => number,
): Promise<CredentialFile> {
  let content = (await readFile(path, 'utf8')).trim();
  if (content === '') throw new Error('the file is empty');
  let readAtMs = nowMs();
  let reading: Promise<string> | undefined;

  const reread = async (): Promise<string> => {
    try {
      const latest = (await readFile(path, 'utf8')).trim();
      // A writer that truncates first shows an empty file for a moment.
      if (latest !== '') content = latest;
    } catch {
      // Kept until the server refuses it: what we hold is more likely to work than nothing.
    }
    readAtMs = nowMs();
    reading = undefined;
    return content;
  };

  return {
    path,
    read() {
      if (nowMs() - readAtMs < REREAD_AFTER_MS) return Promise.resolve(content);
      reading ??= reread();
      return reading;
    },
    expire() {
      readAtMs = -Infinity;
    },
  };
}

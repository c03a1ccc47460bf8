import { readFile } from 'node:fs/promises';

/** After this time a file is read again. Tokens are replaced long before they expire. */
export const REREAD_AFTER_MS = 30_000;

/** A file that may be replaced at any time: token, CA, certificate, key. */
export interface CredentialFile {
  /** The last content that could be read, trimmed. Reads again after REREAD_AFTER_MS. */
  read(): Promise<string>;
  /** Makes the next `read` read the file again. */
  expire(): void;
}

/** Reads the file for the first time. When a later read fails, the last good content stays in use.
 * @throws the file system's error, or an Error if the file is empty */
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
      // The file is empty for a moment if its writer truncates it first.
      if (latest !== '') content = latest;
    } catch {
      // The earlier content may still be valid; the server decides that.
    }
    readAtMs = nowMs();
    reading = undefined;
    return content;
  };

  return {
    read() {
      if (nowMs() - readAtMs < REREAD_AFTER_MS) return Promise.resolve(content);
      return (reading ??= reread());
    },
    expire() {
      readAtMs = -Infinity;
    },
  };
}

import { readFile } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { messageOf } from './error-message.ts';
import { UsageError } from './flags.ts';
import { Listeners } from './listeners.ts';
import type { Logger } from './log.ts';
import { PollLoop } from './poll-loop.ts';

/** The parsed content of files that may be replaced at any time. */
export interface WatchedFiles<T> {
  /** The last content that could be used. */
  readonly current: T;
  /** Why the files, or the content in use, can't be used now; undefined if they can. */
  readonly trouble: string | undefined;
  /** Calls the listener after each change of `current`.
   * @returns a function that ends the subscription */
  onChange(listener: (next: T, before: T) => void): () => void;
  close(): void;
}

/** A file. `flag` (without "--") gives its path; '' for no file. */
export interface NamedFile {
  readonly flag: string;
  readonly path: string;
}

const INTERVAL_MS = 10_000;

/** Reads files at once and then every 10 s. Polling, not inotify: a mounted Secret consists of
 * symbolic links into a folder that is replaced, and some volumes send no notifications.
 * @param o.parse    gets the files' texts in order, '' for no file. Throws a UsageError that names
 *   flag and file, or for the only file an Error. Quotes no secret
 * @param o.expired  says why the content in use is no longer valid
 * @throws UsageError if the files can't be used at the start */
export async function watchFiles<T>(o: {
  readonly files: readonly NamedFile[];
  readonly parse: (texts: readonly string[]) => T;
  readonly expired?: (current: T) => string | undefined;
  readonly log: Logger;
  readonly intervalMs?: number;
}): Promise<WatchedFiles<T>> {
  const { files, log, intervalMs = INTERVAL_MS } = o;
  const changes = new Listeners<{ readonly next: T; readonly before: T }>();
  let seen = await readTexts(files);
  let current = parseTexts(o, seen);
  let trouble: string | undefined;

  const look = async (closed: AbortSignal): Promise<void> => {
    const texts = await readTexts(files);
    if (isDeepStrictEqual(texts, seen) || closed.aborted) return;
    seen = texts;
    const before = current;
    try {
      current = parseTexts(o, texts);
      trouble = undefined;
    } catch (error) {
      trouble = messageOf(error);
      return log.warn(
        { reason: trouble },
        'a file can not be used; its last good content stays in use',
      );
    }
    log.info({ files: files.map(({ path }) => path) }, 'a file was replaced and is now in use');
    changes.notify({ next: current, before });
  };
  const loop = new PollLoop({
    step: look,
    onError: (error) => log.error({ err: error }, 'could not use a file that was replaced'),
    periodMs: intervalMs,
  });
  return {
    get current() {
      return current;
    },
    get trouble() {
      return o.expired?.(current) ?? trouble;
    },
    onChange: (listener) => changes.subscribe(({ next, before }) => listener(next, before)),
    close: () => void loop.stop(),
  };
}

/** @returns the error's message if one of them can't be read */
async function readTexts(files: readonly NamedFile[]): Promise<readonly string[] | string> {
  const texts: string[] = [];
  for (const { flag, path } of files)
    try {
      texts.push(path === '' ? '' : await readFile(path, 'utf8'));
    } catch (error) {
      return `--${flag} ${path}: ${messageOf(error)}`;
    }
  return texts;
}

/** @throws UsageError */
function parseTexts<T>(
  o: {
    readonly files: readonly NamedFile[];
    readonly parse: (texts: readonly string[]) => T;
  },
  texts: readonly string[] | string,
): T {
  if (typeof texts === 'string') throw new UsageError(texts);
  try {
    return o.parse(texts);
  } catch (cause) {
    if (cause instanceof UsageError) throw cause;
    const [file] = o.files;
    throw new UsageError(`--${file?.flag} ${file?.path}: ${messageOf(cause)}`, { cause });
  }
}

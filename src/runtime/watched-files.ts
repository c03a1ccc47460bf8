import { readFile } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from './clock.ts';
import { messageOf } from './error-message.ts';
import { UsageError } from './flags.ts';
import { Listeners } from './listeners.ts';
import type { Logger } from './log.ts';

/** What files say that may be replaced at any time. */
export interface WatchedFiles<T> {
  /** As the files were last when they could be used. */
  readonly current: T;
  /** Says that the files can't be used as they are now; undefined otherwise. */
  readonly trouble: string | undefined;
  /** Calls the listener after each change of `current`.
   * @returns a function that ends that */
  onChange(listener: (next: T, before: T) => void): () => void;
  close(): void;
}

interface WatchOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly intervalMs?: number;
}

type Texts<F extends string> = Readonly<Record<F, string>>;

const INTERVAL_MS = 10_000;

/** Reads files at once and then every 10 s. Polling is used instead of inotify, because the files
 * of a mounted Secret are symbolic links into a folder that is replaced, and some volumes send no
 * notifications.
 * @param o.paths  by the name of the flag that gives the path, without "--"; '' for no file
 * @param o.parse  gets the texts by the same names, '' for no file. Throws an Error that names flag
 *                 and file and says what is wrong, without quoting a secret
 * @throws UsageError if the files can't be used at the start */
export async function watchFiles<T, F extends string>(
  o: WatchOptions & {
    readonly paths: Texts<F>;
    readonly parse: (texts: Texts<F>) => T | Promise<T>;
  },
): Promise<WatchedFiles<T>> {
  const { paths, clock, log, intervalMs = INTERVAL_MS } = o;
  const changes = new Listeners<{ readonly next: T; readonly before: T }>();
  let used = await readTexts(paths);
  const first = await judge(used, o.parse);
  if (first instanceof UsageError) throw first;
  let current = first.value;
  let trouble: string | undefined;
  let judged = used;
  const closed = new AbortController();

  const look = async (): Promise<void> => {
    const texts = await readTexts(paths);
    if (isDeepStrictEqual(texts, judged)) return;
    const next = await judge(texts, o.parse);
    if (closed.signal.aborted) return;
    judged = texts;
    trouble = next instanceof UsageError ? next.message : undefined;
    if (next instanceof UsageError)
      return log.warn({ reason: trouble }, 'a file can not be used: what it said stays in use');
    if (isDeepStrictEqual(texts, used)) return;
    log.info({ files: Object.values(paths) }, 'a file was replaced and is now in use');
    used = texts;
    const before = current;
    current = next.value;
    changes.notify({ next: current, before });
  };
  const lookAgain = async (): Promise<void> => {
    await clock.sleep(intervalMs, closed.signal);
    if (closed.signal.aborted) return;
    await look();
    void lookAgain();
  };
  void lookAgain();
  return {
    get current() {
      return current;
    },
    get trouble() {
      return trouble;
    },
    onChange: (listener) => changes.subscribe(({ next, before }) => listener(next, before)),
    close: () => closed.abort(),
  };
}

/** The same for one file.
 * @param o.parse  throws an Error that says what is wrong, without quoting a secret */
export function watchFile<T>(
  o: WatchOptions & {
    readonly path: string;
    readonly flag: string;
    readonly parse: (text: string) => T | Promise<T>;
  },
): Promise<WatchedFiles<T>> {
  const { path, flag } = o;
  return watchFiles({
    ...o,
    paths: { [flag]: path },
    parse: async ({ [flag]: text = '' }) => {
      try {
        return await o.parse(text);
      } catch (cause) {
        throw new UsageError(`--${flag} ${path}: ${messageOf(cause)}`, { cause });
      }
    },
  });
}

async function readTexts<F extends string>(paths: Texts<F>): Promise<Texts<F> | UsageError> {
  const texts: Record<F, string> = { ...paths };
  for (const [flag, path] of Object.entries<string>(paths)) {
    try {
      if (path !== '') texts[flag as F] = await readFile(path, 'utf8');
    } catch (error) {
      return new UsageError(`--${flag} ${path}: ${messageOf(error)}`);
    }
  }
  return texts;
}

async function judge<T, F extends string>(
  texts: Texts<F> | UsageError,
  parse: (texts: Texts<F>) => T | Promise<T>,
): Promise<{ readonly value: T } | UsageError> {
  if (texts instanceof UsageError) return texts;
  try {
    return { value: await parse(texts) };
  } catch (error) {
    return error instanceof UsageError ? error : new UsageError(messageOf(error), { cause: error });
  }
}

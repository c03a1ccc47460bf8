import { readFile } from 'node:fs/promises';
import { type Clock, repeatAfterPauses } from './clock.ts';
import { messageOf } from './error-message.ts';
import { UsageError } from './flags.ts';
import type { Logger } from './log.ts';

/** What a file says that may be replaced at any time. */
export interface WatchedFile<T> {
  /** As the file was last when it could be used. */
  readonly current: T;
  /** Says that the file can't be used as it is now; undefined otherwise. */
  readonly trouble: string | undefined;
  close(): void;
}

const INTERVAL_MS = 10_000;

/** Reads a file at once and then every 10 s; see watchTlsFiles for why it is polled.
 * @param o.flag   name of the flag that gives the path, without "--"
 * @param o.parse  throws an Error that says what is wrong, without quoting a secret
 * @throws UsageError if the file can't be used at the start */
export async function watchFile<T>(o: {
  readonly path: string;
  readonly flag: string;
  readonly parse: (text: string) => T;
  readonly clock: Clock;
  readonly log: Logger;
  readonly intervalMs?: number;
}): Promise<WatchedFile<T>> {
  const { path, flag, parse, clock, log, intervalMs = INTERVAL_MS } = o;
  const read = async (): Promise<string | UsageError> => {
    try {
      return await readFile(path, 'utf8');
    } catch (error) {
      return new UsageError(`--${flag} ${path}: ${messageOf(error)}`, { cause: error });
    }
  };
  const parseText = (text: string): { readonly value: T } | UsageError => {
    try {
      return { value: parse(text) };
    } catch (error) {
      return new UsageError(`--${flag} ${path}: ${messageOf(error)}`, { cause: error });
    }
  };
  let text = await read();
  if (text instanceof UsageError) throw text;
  const first = parseText(text);
  if (first instanceof UsageError) throw first;
  let current = first.value;
  let trouble: string | undefined;
  const closed = new AbortController();

  const reload = async (): Promise<void> => {
    const next = await read();
    const isSame = next === text && trouble === undefined;
    if (closed.signal.aborted || isSame) return;
    const parsed = next instanceof UsageError ? next : parseText(next);
    if (parsed instanceof UsageError) {
      if (parsed.message !== trouble)
        log.warn({ reason: parsed.message }, 'a file can not be used: what it said stays in use');
      trouble = parsed.message;
      return;
    }
    if (next !== text) log.info({ file: path }, 'a file was replaced and is now in use');
    trouble = undefined;
    text = next;
    current = parsed.value;
  };
  void repeatAfterPauses({ step: reload, pauseMs: intervalMs, clock, signal: closed.signal });
  return {
    get current() {
      return current;
    },
    get trouble() {
      return trouble;
    },
    close: () => closed.abort(),
  };
}

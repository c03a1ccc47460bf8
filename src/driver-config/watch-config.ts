import { readFile } from 'node:fs/promises';
import type { Clock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import { UsageError } from '../runtime/flags.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import { type DriverConfig, isConfig } from './read-config.ts';
import type { Fault } from './yaml-tree.ts';

export interface WatchedDriverConfig {
  /** The last content that could be used. */
  readonly current: DriverConfig;
  /** Why the file can't be used as it is now, in one line; undefined while it can. */
  readonly trouble: string | undefined;
  /** Calls the listener after each change of `current`. */
  onChange(listener: (next: DriverConfig) => void): void;
  close(): void;
}

/** What a text says, or what is wrong with it. */
type Read = (text: string) => Promise<DriverConfig | readonly Fault[]>;

const PERIOD_MS = 500;
/** As much as a ConfigMap can hold. */
const MAX_LENGTH = 1024 * 1024;
/** Faults that a line shows. */
const SHOWN = 5;

/** Reads the file at once, and then twice a second. A change is used when two looks in a row found
 * the same text, since a file that is written in place is incomplete for a moment. Polling is used
 * instead of inotify for the reason that runtime/tls-files.ts gives.
 * @throws UsageError if the file can't be used at the start */
export async function watchDriverConfig(o: {
  readonly path: string;
  readonly read: Read;
  readonly clock: Clock;
  readonly log: Logger;
  readonly periodMs?: number;
}): Promise<WatchedDriverConfig> {
  const { path, read, clock, log, periodMs = PERIOD_MS } = o;
  const changes = new Listeners<DriverConfig>();
  let judgedText: string | Error = await readText(path);
  let current = await judgeFirst(path, judgedText, read);
  let trouble: string | undefined;
  let lastText = judgedText;

  const look = async (signal: AbortSignal): Promise<void> => {
    const text = await readText(path);
    const isSettled = isSame(text, lastText);
    lastText = text;
    if (!isSettled || isSame(text, judgedText)) return;
    const next = await judge(text, read);
    if (signal.aborted) return;
    judgedText = text;
    if (typeof next === 'string') {
      trouble = `${path} can't be used, and the last good content stays in use: ${next}`;
      return log.warn({ path, reason: next }, 'the driver config can not be used as it is now');
    }
    trouble = undefined;
    current = next;
    log.info({ path, drivers: [...next.keys()] }, 'the driver config was read');
    changes.notify(next);
  };
  const loop = new PollLoop({
    step: look,
    onError: (error) => log.error({ err: error, path }, 'reading the driver config failed'),
    periodMs,
    clock,
  });
  return {
    get current() {
      return current;
    },
    get trouble() {
      return trouble;
    },
    onChange: (listener) => void changes.subscribe(listener),
    close: () => void loop.stop(),
  };
}

/** Reads the file for a command that does not watch it.
 * @throws UsageError if it can't be used */
export async function readFileOnce(path: string, read: Read): Promise<DriverConfig> {
  return judgeFirst(path, await readText(path), read);
}

async function judgeFirst(path: string, text: string | Error, read: Read): Promise<DriverConfig> {
  const first = await judge(text, read);
  if (typeof first === 'string') throw new UsageError(`--driver-config ${path}: ${first}`);
  return first;
}

async function readText(path: string): Promise<string | Error> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    return error instanceof Error ? error : new Error(messageOf(error));
  }
}

function isSame(a: string | Error, b: string | Error): boolean {
  return a instanceof Error ? b instanceof Error && a.message === b.message : a === b;
}

/** @returns the content, or a line that says why it can't be used */
async function judge(text: string | Error, read: Read): Promise<DriverConfig | string> {
  if (text instanceof Error) return `it can't be read: ${text.message}`;
  if (text.length > MAX_LENGTH) return 'it is longer than 1 MiB';
  const result = await read(text);
  return isConfig(result) ? result : describeFaults(result);
}

function describeFaults(faults: readonly Fault[]): string {
  const lines = faults.slice(0, SHOWN).map(({ line, what }) => `line ${line}: ${what}`);
  const more = faults.length - lines.length;
  return [...lines, ...(more > 0 ? [`and ${more} more`] : [])].join('; ');
}

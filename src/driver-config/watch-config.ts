import { readFile } from 'node:fs/promises';
import type { Clock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';
import { watchFile, type WatchedFiles } from '../runtime/watched-files.ts';
import { type DriverConfig, isConfig } from './read-config.ts';
import type { Fault } from './yaml-tree.ts';

export type WatchedDriverConfig = WatchedFiles<DriverConfig>;

/** What a text says, or what is wrong with it. */
type Read = (text: string) => Promise<DriverConfig | readonly Fault[]>;

const PERIOD_MS = 500;
/** As much as a ConfigMap can hold. */
const MAX_LENGTH = 1024 * 1024;
/** Faults that a line shows. */
const SHOWN = 5;

/** Reads the file at once, and then twice a second.
 * @throws UsageError if the file can't be used at the start */
export function watchDriverConfig(o: {
  readonly path: string;
  readonly read: Read;
  readonly clock: Clock;
  readonly log: Logger;
  readonly periodMs?: number;
}): Promise<WatchedDriverConfig> {
  const { path, read, clock, log, periodMs: intervalMs = PERIOD_MS } = o;
  const parse = (text: string): Promise<DriverConfig> => judge(text, read);
  return watchFile({
    path,
    flag: 'driver-config',
    parse,
    clock,
    log,
    intervalMs,
    needsTwoLooks: true,
  });
}

/** Reads the file for a command that does not watch it.
 * @throws UsageError if it can't be used */
export async function readFileOnce(path: string, read: Read): Promise<DriverConfig> {
  try {
    return await judge(await readFile(path, 'utf8'), read);
  } catch (cause) {
    throw new UsageError(`--driver-config ${path}: ${messageOf(cause)}`, { cause });
  }
}

/** @throws Error that says why it can't be used */
async function judge(text: string, read: Read): Promise<DriverConfig> {
  if (text.length > MAX_LENGTH) throw new Error('it is longer than 1 MiB');
  const result = await read(text);
  if (isConfig(result)) return result;
  const lines = result.slice(0, SHOWN).map(({ line, what }) => `line ${line}: ${what}`);
  const more = result.length - lines.length;
  throw new Error([...lines, ...(more > 0 ? [`and ${more} more`] : [])].join('; '));
}

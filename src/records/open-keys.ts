import { systemClock } from '../runtime/clock.ts';
import type { Flags } from '../runtime/flags.ts';
import type { ProcessContext } from '../runtime/process.ts';
import { watchFile, type WatchedFiles } from '../runtime/watched-files.ts';
import type { recordKeyFlags } from './flags.ts';
import { parseRecordKeys, type RecordKeys } from './record-seal.ts';

/** Reads the file of --record-key-file, and again when it changes.
 * @returns undefined without the flag
 * @throws UsageError for a file that can't be used */
export async function openRecordKeys({
  flags: { recordKeyFile: path },
  closers,
  health,
  log,
}: Pick<ProcessContext<typeof recordKeyFlags>, 'closers' | 'health' | 'log'> & {
  readonly flags: Flags<typeof recordKeyFlags>;
}): Promise<WatchedFiles<RecordKeys> | undefined> {
  if (path === '') return undefined;
  const flag = 'record-key-file';
  const file = await watchFile({ path, flag, parse: parseRecordKeys, clock: systemClock, log });
  closers.add('record keys', () => file.close());
  health.ready('record-keys', () => file.trouble);
  return file;
}

import { systemClock } from '../runtime/clock.ts';
import type { Means, Result } from './command.ts';
import type { commandFlags } from './flags.ts';

const LOOK_EVERY_MS = 1_000;

/** Looks once, or with --watch again and again until the command is interrupted, and prints what
 * each look shows if it is another than before.
 * @returns what the last look found, if it was not printed yet */
export async function repeat(
  { context: { stopping }, say }: Pick<Means<typeof commandFlags>, 'context' | 'say'>,
  isWatching: boolean,
  look: () => Promise<Result>,
): Promise<Result> {
  let found = await look();
  if (!isWatching) return found;
  let shown = '';
  while (!stopping.aborted) {
    const text = found.lines.join('\n');
    if (text !== shown) for (const line of found.lines) say(line);
    shown = text;
    await systemClock.sleep(LOOK_EVERY_MS, stopping);
    if (!stopping.aborted) found = await look();
  }
  return { ...found, lines: [] };
}

import { systemClock } from '../runtime/clock.ts';
import type { Means, Result } from './command.ts';
import type { lookFlags } from './flags.ts';

const LOOK_EVERY_MS = 1_000;

/** Looks once, or with --watch again and again until the command is interrupted, and prints what
 * each look has found if it is another than before. */
export async function repeat(
  { context, show }: Pick<Means<typeof lookFlags>, 'context' | 'show'>,
  look: () => Promise<Result>,
): Promise<Result> {
  const { flags, stopping } = context;
  let shown = '';
  for (;;) {
    const found = await look();
    if (!flags.watch) return found;
    const text = found.lines.join('\n');
    if (text !== shown) show(found);
    shown = text;
    await systemClock.sleep(LOOK_EVERY_MS, stopping);
    if (stopping.aborted) return { ...found, isShown: true };
  }
}

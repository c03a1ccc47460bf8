import { systemClock } from '../runtime/clock.ts';
import type { Means, Result } from './command.ts';
import type { lookFlags } from './flags.ts';

const LOOK_EVERY_MS = 1_000;

/** Looks once, or with --watch again and again until the command is interrupted, and prints what
 * each look has found if its facts are others than before. */
export async function repeat(
  { context, show }: Pick<Means<typeof lookFlags>, 'context' | 'show'>,
  look: () => Promise<Result & Required<Pick<Result, 'facts'>>>,
): Promise<Result> {
  const { flags, stopping } = context;
  let shown: string | undefined;
  for (;;) {
    const found = await look();
    if (!flags.watch) return found;
    const facts = JSON.stringify(found.facts);
    if (facts !== shown) show(found);
    shown = facts;
    await systemClock.sleep(LOOK_EVERY_MS, stopping);
    if (stopping.aborted) return { ...found, isShown: true };
  }
}

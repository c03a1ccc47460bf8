import { type Cause, LASTING_MS, mayPass } from '../explain/causes.ts';
import { signalWithin, systemClock } from '../runtime/clock.ts';
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

const POLL_MS = 500;

/** Looks once, and again for up to 5 s while what is found may be the moment in which Redis or a
 * leader comes back. */
export async function lookUntilItLasts<T extends { readonly cause: Cause | undefined }>(
  look: () => Promise<readonly T[]>,
  stopping: AbortSignal,
): Promise<readonly T[]> {
  const limit = signalWithin(stopping, LASTING_MS);
  for (;;) {
    const found = await look();
    if (!mayPass(found) || limit.aborted) return found;
    await systemClock.sleep(POLL_MS, limit);
  }
}

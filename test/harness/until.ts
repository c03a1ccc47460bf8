import { setTimeout } from 'node:timers/promises';

/** Waits until a condition holds.
 * @param what      names the condition in the error
 * @param withinMs  less than a minute by default, the time for which keys of some tests are delayed
 * @throws Error when it does not hold in time */
export async function until(
  condition: () => unknown,
  what: string,
  withinMs = 50_000,
): Promise<void> {
  const endMs = Date.now() + withinMs;
  while (!(await condition())) {
    if (Date.now() > endMs) throw new Error(`not within ${withinMs} ms: ${what}`);
    await setTimeout(5);
  }
}

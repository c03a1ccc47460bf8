import { KubeError } from '../kube/kube-error.ts';
import { MAX_IN_FLIGHT, MAX_PER_SECOND } from '../kube/keys.ts';
import type { Class } from '../kube/objects.ts';
import { classes } from '../kube/resources.ts';
import type { Turn, TurnLimits } from '../queue/class-turns.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import { askRedis } from '../records/ask-redis.ts';
import { readClassSettings } from '../volumes/class-settings.ts';
import type { Dependencies } from './dependencies.ts';

/** Creates or deletes a volume when the limits of its class allow it, else ends the run. A class
 * without limits costs nothing.
 * @param work  opens the record and calls the driver
 * @throws RecordsUnavailable, and what `work` throws */
export async function inTurn(
  { redis: { turns }, reports: { log } }: Dependencies,
  key: JobKey,
  cls: Class | undefined,
  work: () => Promise<Outcome>,
): Promise<Outcome> {
  const { maxInFlight, maxPerSecond } = readClassSettings(cls);
  if (cls === undefined || (maxInFlight ?? maxPerSecond) === undefined) return work();
  const { name, resourceVersion: seen } = cls.metadata;
  const limits = { className: name, maxInFlight, maxPerSecond };
  const turn = await askRedis(turns.take(key, limits));
  if (turn.kind === 'waits' || turn.startsInMs > 0) {
    const reason = whyItWaits(key, limits, turn);
    const until = [{ resource: classes.plural, name, seen }];
    return turn.kind === 'waits'
      ? { kind: 'later', reason, until, delayMs: turn.askInMs, isTurn: true }
      : { kind: 'later', reason, delayMs: turn.startsInMs, isTurn: true };
  }
  let mayBeAtWork = true;
  try {
    const outcome = await work();
    mayBeAtWork =
      outcome.kind === 'running' || (outcome.kind === 'retry' && outcome.mayBeAtWork === true);
    return outcome;
  } catch (error) {
    mayBeAtWork = !(error instanceof KubeError);
    throw error;
  } finally {
    // Otherwise the turn expires.
    if (!mayBeAtWork)
      await turns
        .end(key, limits)
        .catch((error: unknown) => log.debug({ err: error, class: name }, 'turn not ended'));
  }
}

function whyItWaits(
  { kind }: JobKey,
  { className, maxInFlight, maxPerSecond }: TurnLimits,
  turn: Turn,
): string {
  const what = `class "${className}"`;
  if (maxInFlight === 0) return `${what} is paused (${MAX_IN_FLIGHT}: 0)`;
  const does = `${what} ${kind === 'claim' ? 'creates' : 'deletes'} at most`;
  const when =
    turn.kind === 'waits'
      ? `${turn.before} wait before this one`
      : `it is the turn of this one in ${Math.ceil(turn.startsInMs / 1_000)} s`;
  return turn.kind === 'waits' && turn.isFull
    ? `${does} ${maxInFlight} volumes at once (${MAX_IN_FLIGHT}), ${when}`
    : `${does} ${maxPerSecond} volumes a second (${MAX_PER_SECOND}), ${when}`;
}

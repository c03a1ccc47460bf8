import { KubeError } from '../kube/kube-error.ts';
import { MAX_IN_FLIGHT, MAX_PER_SECOND } from '../kube/keys.ts';
import type { Class } from '../kube/objects.ts';
import { classes } from '../kube/resources.ts';
import type { TurnLimits, TurnWait } from '../queue/class-turns.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import { askRedis } from '../redis/ask-redis.ts';
import { readClassSettings } from '../volumes/class-settings.ts';
import type { Dependencies } from './dependencies.ts';

/** Whose turn it is. */
interface TurnOf {
  readonly key: JobKey;
  /** Undefined if it is not known, or gone. */
  readonly cls: Class | undefined;
  /** Whether a volume is to be created or deleted. Otherwise a turn ends that an earlier run could
   * not end, because its process or Redis went away. */
  readonly isNeeded: boolean;
}

/** As long as a turn lasts without a run. */
const END_TRIES = 120;
const END_PAUSE_MS = 1_000;

/** Creates or deletes a volume when the limits of its class allow it, else ends the run. A class
 * without limits costs nothing.
 * @param work  calls the driver
 * @throws RedisUnavailable, and what `work` throws */
export async function inTurn(
  { clock, cluster, redis: { turns }, reports: { log } }: Dependencies,
  { key, cls, isNeeded }: TurnOf,
  work: () => Promise<Outcome>,
): Promise<Outcome> {
  // Nobody knows the class of a claim that is gone: its turn ends wherever it may be.
  const ofClasses = cls !== undefined || isNeeded ? [cls] : [...cluster.classes()];
  const held = ofClasses.flatMap((each) => limitsOf(each) ?? []);
  const [limits] = held;
  if (limits === undefined) return work();
  const wait = isNeeded ? await askRedis(turns.take(key, limits)) : undefined;
  if (wait !== undefined) {
    const seen = cls?.metadata.resourceVersion ?? '';
    const until = [{ resource: classes.plural, name: limits.className, seen }];
    const reason = whyItWaits(key, limits, wait);
    return { kind: 'later', reason, until, delayMs: wait.askInMs, isTurn: true };
  }
  const end = async (tries: number): Promise<void> => {
    try {
      for (const each of held) await turns.end(key, each);
    } catch (error) {
      log.debug({ err: error, triesLeft: tries - 1 }, 'a turn was not ended; it may expire');
      // The run ends meanwhile, so that its worker can take another job.
      if (tries > 1) void clock.sleep(END_PAUSE_MS).then(() => end(tries - 1));
    }
  };
  const outcome = await work().catch(async (error: unknown) => {
    if (error instanceof KubeError) await end(1);
    throw error;
  });
  const mayBeAtWork =
    outcome.kind === 'running' || (outcome.kind === 'retry' && outcome.mayBeAtWork === true);
  // A key that is done has no next run that could end its turn.
  if (!mayBeAtWork) await end(outcome.kind === 'done' ? END_TRIES : 1);
  return outcome;
}

function limitsOf(cls: Class | undefined): TurnLimits | undefined {
  const { maxInFlight, maxPerSecond } = readClassSettings(cls);
  if (cls === undefined || (maxInFlight ?? maxPerSecond) === undefined) return undefined;
  return { className: cls.metadata.name, maxInFlight, maxPerSecond };
}

function whyItWaits(
  { kind }: JobKey,
  { className, maxInFlight, maxPerSecond }: TurnLimits,
  { before, isFull, askInMs }: TurnWait,
): string {
  if (maxInFlight === 0) return `class "${className}" is paused (${MAX_IN_FLIGHT}: 0)`;
  const most = isFull
    ? `${maxInFlight} volumes at once (${MAX_IN_FLIGHT})`
    : `${maxPerSecond} volumes a second (${MAX_PER_SECOND})`;
  const when =
    before === undefined
      ? `it is the turn of this one in ${Math.ceil(askInMs / 1_000)} s`
      : `${before} wait before this one`;
  return `class "${className}" ${kind === 'claim' ? 'creates' : 'deletes'} at most ${most}, ${when}`;
}

import { MAX_IN_FLIGHT } from '../kube/keys.ts';
import type { Class } from '../kube/objects.ts';
import { classes } from '../kube/resources.ts';
import { type JobKey, type KeyUid, workId } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import { classPlacesKey, queueName } from '../queue/queue-keys.ts';
import type { Run } from '../queue/run.ts';
import { askRedis } from '../redis/ask-redis.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import { readClassSettings } from '../volumes/class-settings.ts';
import type { Dependencies, JobRun } from './dependencies.ts';

/** The limit of a class: how many of its volumes all workers together create at once. The same
 * number may be deleted at once. A key that calls the driver holds one of the limit's places. */
export interface Limit {
  readonly className: string;
  /** 0 or more. */
  readonly maxInFlight: number;
}

/** Shortest wait of a key that gets no place. The longest is twice that. */
const ASK_AGAIN_MS = 3_000;

/** Takes a place, or renews it.
 *
 * Keys  places  the keys that have a place, with the time at which it expires
 * Args  keepMs  for how long; 0: only checks whether there is a place */
const takeScript = defineNamedScript({
  keys: ['places'],
  args: { uid: 'text', maxInFlight: 'number', keepMs: 'number' },
  answers: { taken: {}, full: {} },
  lua: `${REDIS_NOW}
redis.call('ZREMRANGEBYSCORE', places, '-inf', now)
local isKept = redis.call('ZSCORE', places, uid)
if not isKept and redis.call('ZCARD', places) >= maxInFlight then return {'full'} end
if keepMs > 0 then
  redis.call('ZADD', places, now + keepMs, uid)
  redis.call('PEXPIRE', places, keepMs)
end
return {'taken'}
`,
});

/** The limits of one driver's classes. Methods reject if Redis does not answer. */
export class ClassLimits {
  readonly #place: RedisPlace & { readonly keepMs: number };
  readonly #random: () => number;

  /** @param place.keepMs  how long a key keeps its place without a run; longer than any run
   * @param random  uniform in [0, 1) */
  constructor(place: RedisPlace & { readonly keepMs: number }, random = Math.random) {
    this.#place = place;
    this.#random = random;
  }

  /** Takes a place for a key, or renews the key's place.
   * @returns undefined if the run may go on, else in how many ms to ask again */
  take(key: KeyUid, limit: Limit): Promise<number | undefined> {
    return this.#ask(key, limit, this.#place.keepMs);
  }

  /** Checks whether a key could take a place.
   * @returns as `take` */
  look(key: KeyUid, limit: Limit): Promise<number | undefined> {
    return this.#ask(key, limit, 0);
  }

  async #ask(key: KeyUid, limit: Limit, keepMs: number): Promise<number | undefined> {
    const { redis } = this.#place;
    const args = { uid: workId(key), maxInFlight: limit.maxInFlight, keepMs };
    const { kind } = await takeScript.run(redis, { places: this.#key(key, limit) }, args);
    return kind === 'taken' ? undefined : Math.ceil(ASK_AGAIN_MS * (1 + this.#random()));
  }

  /** Gives the place of a key back. */
  async end(key: KeyUid, limit: Limit): Promise<void> {
    await this.#place.redis.zrem(this.#key(key, limit), workId(key));
  }

  #key({ kind }: KeyUid, { className }: Limit): string {
    const { prefix, driver } = this.#place;
    return classPlacesKey(prefix, queueName(kind, driver), className);
  }
}

/** Creates or deletes a volume if the limit of its class allows it; otherwise ends the run. Sends
 * no command for a class without a limit.
 * @param of.cls  undefined if it is unknown or gone
 * @param of.isNeeded  whether to create or delete a volume; false: gives back the place of an
 *   earlier run
 * @param work  calls the driver
 * @throws RedisUnavailable, and what `work` throws */
export async function withinClassLimit(
  { classLimits, log, job: key }: JobRun,
  { cls, isNeeded }: { readonly cls: Class | undefined; readonly isNeeded: boolean },
  work: () => Promise<Outcome>,
): Promise<Outcome> {
  const limit = limitOf(cls);
  if (limit === undefined) return work();
  const asked = isNeeded ? classLimits.take(key, limit) : undefined;
  const waits = asked && (await waitFor(asked, key, limit, cls));
  if (waits !== undefined) return waits;
  let mayBeAtWork = false;
  try {
    const outcome = await work();
    mayBeAtWork =
      outcome.kind === 'running' || (outcome.kind === 'retry' && outcome.mayBeAtWork === true);
    return outcome;
  } finally {
    if (!mayBeAtWork)
      await askRedis(classLimits.end(key, limit)).catch((error: unknown) =>
        log.debug(
          { err: error },
          'could not give back a place in the limit of a class; it expires by itself',
        ),
      );
  }
}

/** Checks the limit first if the key's last run waited for it, before the run reads anything.
 * @returns undefined if the run may go on
 * @throws RedisUnavailable */
export async function waitForClassLimit(
  { classOf, classLimits }: Dependencies,
  key: JobKey,
  run: Pick<Run, 'count' | 'lastStatus'>,
): Promise<Outcome | undefined> {
  if (run.count <= 1) return undefined;
  const last = await run.lastStatus();
  const [waited] = last?.until ?? [];
  // Only a wait for a limit ends with `later` and a class to wait for.
  if (last?.outcome !== 'later' || waited?.resource !== classes.plural) return undefined;
  const cls = classOf(waited.name);
  const limit = limitOf(cls);
  return limit && waitFor(classLimits.look(key, limit), key, limit, cls);
}

/** @returns the outcome of a run that gets no place; undefined if it gets one */
async function waitFor(
  asked: Promise<number | undefined>,
  key: JobKey,
  limit: Limit,
  cls: Class | undefined,
): Promise<Outcome | undefined> {
  const { className, maxInFlight } = limit;
  const delayMs = await askRedis(asked);
  if (delayMs === undefined) return undefined;
  const does = key.kind === 'claim' ? 'creates' : 'deletes';
  const reason =
    maxInFlight === 0
      ? `class "${className}" is paused (${MAX_IN_FLIGHT}: 0)`
      : `class "${className}" ${does} at most ${maxInFlight} volumes at once (${MAX_IN_FLIGHT})`;
  const seen = cls?.metadata.resourceVersion ?? '';
  const until = [{ resource: classes.plural, name: className, seen }];
  return { kind: 'later', reason, until, delayMs, isTurn: true };
}

function limitOf(cls: Class | undefined): Limit | undefined {
  const { maxInFlight } = readClassSettings(cls);
  return cls === undefined || maxInFlight === undefined
    ? undefined
    : { className: cls.metadata.name, maxInFlight };
}

import type { Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import { keyId, type KeyUid, workId } from './contract.ts';
import { queueName, turnsKey } from './queue-keys.ts';
import { markPendingPromotion, promoteKey, useQueue } from './queues.ts';

/* The limits of a class. Whoever creates or deletes a volume of it takes a turn, and the others
 * wait in a line. When turns end, those in front get them, and their jobs are promoted. A key that
 * has a turn keeps it while a call of it may be at work, for as long as it runs again in time.
 *
 * Keys  turns    the keys that have a turn, with the time at which it expires
 *       line     those that wait, in the order in which they came
 *       starts   with a limit per second: when each turn starts, and in `last` the latest of these.
 *                A turn is given only shortly before it starts, so that another limit takes effect
 *                soon */

/** The limits of a class for one kind of job; undefined: none. One is there. */
export interface TurnLimits {
  readonly className: string;
  readonly maxInFlight: number | undefined;
  readonly maxPerSecond: number | undefined;
}

type KeyRef = KeyUid;

/** Why a key waits. */
export interface TurnWait {
  /** Keys that come first; undefined: it has its turn, which starts in `askInMs`. */
  readonly before: number | undefined;
  /** There are as many turns as there may be at once. */
  readonly isFull: boolean;
  /** When to ask again, if the job is not promoted before. */
  readonly askInMs: number;
}

/** How long before it starts a turn is given, at most. */
const AHEAD_MS = 10_000;
/** A turn that was given to a key in the line expires if its run does not come until then. */
const GIVEN_MS = 30_000;
/** Turns that one script gives, at most: Redis does nothing else meanwhile. */
const MOST_GIVEN = 100;
/** A start that is so near counts as come: clocks differ. */
const NEAR_MS = 20;
/** When a key asks again by itself, in case its promotion was lost; later by this much for each key
 * before it, so that a line of thousands asks some ten times a second. */
const ASK_MS = 30_000;
const ASK_MS_PER_KEY = 100;
const DAY_MS = 86_400_000;
/** How long after a failure of Redis to promote all that have been given a turn. */
const LOOK_AGAIN_MS = 1_000;

const KEYS = ['turns', 'line', 'starts'] as const;
/** `maxInFlight`: -1 for none. `intervalMs`: between two starts, 0 for no limit. */
const ARGS = { uid: 'text', maxInFlight: 'number', intervalMs: 'number' } as const;

/** Lua: ends expired turns, gives free ones to those in front, and defines `given`, which lists
 * them. */
const GIVE = `
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', turns, '-inf', now)) do
  redis.call('ZREM', turns, expired)
  redis.call('HDEL', starts, expired)
end
-- No start is farther ahead, unless Redis' clock was set back.
local last = math.min(tonumber(redis.call('HGET', starts, 'last') or 0), now + ${AHEAD_MS})
local function nextStart() return math.max(now, last + intervalMs) end
local room = maxInFlight < 0 and math.huge or maxInFlight - redis.call('ZCARD', turns)
local given = {}
while room > 0 and #given < ${MOST_GIVEN}
  and (intervalMs == 0 or nextStart() <= now + ${AHEAD_MS}) do
  local first = redis.call('ZPOPMIN', line)[1]
  if not first then break end
  redis.call('ZADD', turns, now + ${GIVEN_MS}, first)
  if intervalMs > 0 then
    last = nextStart()
    redis.call('HSET', starts, first, last, 'last', last)
  end
  if first ~= uid then given[#given + 1] = first end
  room = room - 1
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ${DAY_MS}) end
`;

/** Renews the turn of a key, or gives it one, or has it wait.
 *
 * Args  keepMs  when the turn expires if the key does not run again */
const takeScript = defineNamedScript({
  keys: KEYS,
  args: { ...ARGS, keepMs: 'number' },
  answers: {
    taken: { startsInMs: 'number', given: 'list' },
    waits: { before: 'number', isFull: 'flag', nextInMs: 'number', given: 'list' },
  },
  lua: `
local untilMs = redis.call('ZSCORE', turns, uid)
${REDIS_NOW}
if not untilMs or tonumber(untilMs) <= now then
  redis.call('ZREM', turns, uid)
  redis.call('HDEL', starts, uid)
  redis.call('ZADD', line, 'NX', now, uid)
end
${GIVE}
local before = redis.call('ZRANK', line, uid)
if before then
  return {'waits', 'before', before, 'isFull', room <= 0 and '1' or '0',
    'nextInMs', math.ceil(nextStart() - now), 'given', given}
end
redis.call('ZADD', turns, now + keepMs, uid)
local start = intervalMs > 0 and tonumber(redis.call('HGET', starts, uid)) or 0
return {'taken', 'startsInMs', start <= now + ${NEAR_MS} and 0 or math.ceil(start - now),
  'given', given}
`,
});

/** Ends the turn of a key. */
const endScript = defineNamedScript({
  keys: KEYS,
  args: ARGS,
  answers: { ended: { given: 'list' } },
  lua: `
if redis.call('ZSCORE', turns, uid) then redis.call('ZREM', turns, uid) end
redis.call('HDEL', starts, uid)
${REDIS_NOW}${GIVE}
return {'ended', 'given', given}
`,
});

/** The turns of one driver's classes. Methods reject when Redis can't be asked. */
export class ClassTurns {
  readonly #redis: Redis;
  readonly #place: { readonly prefix: string; readonly driver: string; readonly keepMs: number };
  readonly #looks = new Map<string, NodeJS.Timeout>();

  /** @param place.keepMs  how long a key keeps its turn without a run; longer than any run */
  constructor(redis: Redis, place: { prefix: string; driver: string; keepMs: number }) {
    this.#redis = redis;
    this.#place = place;
  }

  /** Asks for a turn; a key that has one keeps it, and starts once.
   * @returns undefined if the run may go on */
  async take(key: KeyRef, limits: TurnLimits): Promise<TurnWait | undefined> {
    const [keys, args] = this.#inputOf(key, limits);
    const { keepMs } = this.#place;
    const asked = takeScript.run(this.#redis, keys, { ...args, keepMs });
    const turn = await this.#passOn(key, limits, asked);
    if (turn.kind === 'taken')
      return turn.startsInMs === 0
        ? undefined
        : { before: undefined, isFull: false, askInMs: turn.startsInMs };
    const { before, isFull, nextInMs } = turn;
    // While one starts at least every AHEAD_MS, its run gives the next turn.
    const inMs = nextInMs + before * Math.max(args.intervalMs, AHEAD_MS) - AHEAD_MS / 2;
    const soonMs = isFull || args.intervalMs === 0 ? Infinity : Math.max(1_000, inMs);
    return { before, isFull, askInMs: Math.min(soonMs, ASK_MS + before * ASK_MS_PER_KEY) };
  }

  /** Ends the turn of a key, so that others get it. */
  async end(key: KeyRef, limits: TurnLimits): Promise<void> {
    await this.#passOn(key, limits, endScript.run(this.#redis, ...this.#inputOf(key, limits)));
  }

  /** Promotes those to whom a script gives turns. Where that fails, it may have given some although
   * nobody knows whom, or is able to tell them. */
  async #passOn<T extends { readonly given: readonly string[] }>(
    key: KeyRef,
    limits: TurnLimits,
    asked: Promise<T>,
  ): Promise<T> {
    try {
      const answer = await asked;
      await this.#promote(key, limits, answer.given);
      return answer;
    } catch (error) {
      this.#lookAgain(key, limits);
      throw error;
    }
  }

  #lookAgain(key: KeyRef, limits: TurnLimits): void {
    const [{ turns }] = this.#inputOf(key, limits);
    const look = async (): Promise<void> => {
      // Turns that were taken last longer.
      const given = await this.#redis.zrangebyscore(turns, 0, Date.now() + GIVEN_MS);
      await this.#promote(key, limits, given);
    };
    clearTimeout(this.#looks.get(turns));
    const retry = (): void => this.#lookAgain(key, limits);
    this.#looks.set(turns, setTimeout(() => void look().catch(retry), LOOK_AGAIN_MS).unref());
  }

  /** Promotes the jobs of keys that were given turns. The turn of a key without a job, as of a
   * claim that is gone, ends. */
  async #promote({ kind }: KeyRef, limits: TurnLimits, uids: readonly string[]): Promise<void> {
    if (uids.length === 0) return;
    const { prefix, driver } = this.#place;
    const place = { prefix, queue: queueName(kind, driver) };
    const promote = async (queue: Queue, uid: string): Promise<KeyRef | undefined> => {
      const id = keyId({ kind, uid });
      // It may be in the run that was told to wait.
      await markPendingPromotion(this.#redis, place, queue, id);
      return (await promoteKey(queue, id)) ? undefined : { kind, uid };
    };
    const gone = await useQueue(this.#redis, place, (queue) =>
      Promise.all(uids.map((uid) => promote(queue, uid))),
    );
    for (const key of gone) if (key !== undefined) await this.end(key, limits);
  }

  #inputOf(key: KeyRef, { className, maxInFlight = -1, maxPerSecond }: TurnLimits) {
    const { prefix, driver } = this.#place;
    const turns = turnsKey(prefix, queueName(key.kind, driver), className);
    const intervalMs = maxPerSecond === undefined ? 0 : 1_000 / maxPerSecond;
    return [
      { turns, line: `${turns}:line`, starts: `${turns}:starts` },
      { uid: workId(key), maxInFlight, intervalMs },
    ] as const;
  }
}

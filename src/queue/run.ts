import type { Job } from 'bullmq';
import { gatewayKeys, GATEWAY_LUA } from '../gateway-client/active-gateway.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { redisNowMs } from '../redis/clock.ts';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import { parseJson } from '../runtime/json.ts';
import { type JobFacts, type JobKey, parseJob } from './contract.ts';
import { HISTORY_KEYS, HISTORY_LUA, historyKeys } from './history.ts';
import { queueRoot } from './queue-keys.ts';
import { readStatus, type RunStatus } from './status.ts';

/* What a job stores about the calls of its runs (docs/leak-proof.md), in two fields of its hash
 * beside BullMQ's:
 *
 * until the time, by Redis' clock in Unix ms, until which calls of earlier runs may be at work in
 * the driver. Absent: no call was begun. Past: a call was begun and is over. Future: in doubt.
 * place the topology that the first call asked for, so that later calls ask for the same */

/** Lua: the locals `untilMs` (nil: no call was begun) and `place`, from the job's hash. Before the
 * job's first call `untilMs` is what the leader put into the job. */
const JOB_LUA = `
local stored, place = unpack(redis.call('HMGET', job, 'until', 'place'))
local untilMs = tonumber(stored or given)
`;

const markScript = defineNamedScript({
  keys: [...HISTORY_KEYS, 'job', 'lock', 'gatewayKey'],
  args: { token: 'text', given: 'text', doubtMs: 'number', planned: 'text' },
  answers: {
    'other-history': {},
    'lock-lost': {},
    wait: { waitMs: 'number' },
    marked: { before: 'text', leftMs: 'text', endpoint: 'text', history: 'text' },
  },
  lua: `${REDIS_NOW}${HISTORY_LUA}
if not isOfHistory then return {'other-history'} end
if redis.call('GET', lock) ~= token then return {'lock-lost'} end
${GATEWAY_LUA}
if openAt > now then return {'wait', 'waitMs', openAt - now} end
${JOB_LUA}
redis.call('HSET', job, 'until', string.format('%.0f', math.max(untilMs or 0, now + doubtMs)))
if not place and planned ~= '' then redis.call('HSET', job, 'place', planned) end
return {'marked', 'before', untilMs and string.format('%.0f', untilMs) or '',
  'leftMs', untilMs and string.format('%.0f', untilMs - now) or '',
  'endpoint', active or '', 'history', history}
`,
});

const unmarkScript = defineNamedScript({
  keys: ['job', 'lock'],
  args: { token: 'text', before: 'text', dropsPlace: 'text' },
  answers: { ok: {} },
  lua: `
if redis.call('GET', lock) ~= token then return {'ok'} end
if before == '' then redis.call('HDEL', job, 'until') else redis.call('HSET', job, 'until', before) end
if dropsPlace == '1' then redis.call('HDEL', job, 'place') end
return {'ok'}
`,
});

/** What earlier runs of a job have begun. */
export interface Begun {
  /** How long calls of earlier runs may still be at work in the driver; 0 or less: they are over.
   * Undefined: no call was begun. */
  readonly leftMs: number | undefined;
  /** The topology that the first call asked for, as JSON; '' for none. */
  readonly place: string;
}

/** No call was begun. */
const NOTHING_BEGUN: Begun = { leftMs: undefined, place: '' };

/** The result of marking a job before a call. */
export type Marked =
  /** The job is of another history, or another worker has its lock. */
  | { readonly kind: 'other-history' | 'lock-lost' }
  /** Calls through another gateway of the driver may be under way for `waitMs`. */
  | { readonly kind: 'wait'; readonly waitMs: number }
  | {
      readonly kind: 'marked';
      /** The value right before this mark. */
      readonly leftMs: number | undefined;
      /** The gateway that the leader has named; '' if none. */
      readonly endpoint: string;
      readonly history: string;
      /** M3: takes the mark back, since the call can't have created anything.
       * @param dropsPlace  no volume can exist, so the next call may ask for another topology */
      readonly undo: (dropsPlace: boolean) => Promise<void>;
    };

/** What a run is given besides its key. */
export interface Run {
  /** Aborted at shutdown, or when the run loses the job's lock. Then the run starts no more calls;
   * it must not cancel a call that was sent. */
  readonly signal: AbortSignal;
  /** When the job was added, Unix ms; that is some milliseconds after the object needed it. */
  readonly queuedMs: number;
  /** How many runs the job has had, this one included. */
  readonly count: number;
  /** What the job says besides its key. */
  readonly facts: JobFacts;
  /** How the key's last run ended; undefined if it ended with `done`, or if nothing is stored.
   * Sends one command at most, so call it only to report a reason. Never rejects. */
  readonly lastStatus: () => Promise<RunStatus | undefined>;
  /** Reads what earlier runs have begun. Sends no command in a job's first run if there were no
   * earlier calls. Rejects while Redis does not answer. */
  readonly begun: () => Promise<Begun>;
  /** M1: marks the job right before a call, for doubtMs from now. Rejects while Redis does not
   * answer.
   * @param planned  the topology that the call asks for, as JSON; '' for none */
  readonly mark: (doubtMs: number, planned: string) => Promise<Marked>;
}

/** The run of a job that a worker has taken.
 * @param taken.token  of the job's lock */
export function openRun(
  place: RedisPlace,
  { id = '', queueName, attemptsStarted: count, timestamp: queuedMs }: Job,
  taken: Pick<Run, 'signal' | 'facts'> & { readonly key: JobKey; readonly token: string },
): Run {
  const { redis, prefix, driver } = place;
  const { signal, facts, key, token } = taken;
  const job = queueRoot(prefix, queueName) + id;
  const lock = `${job}:lock`;
  const given = facts.until === undefined ? '' : String(facts.until);
  let reading: Promise<RunStatus | undefined> | undefined;
  return {
    signal,
    queuedMs,
    count,
    facts,
    // The first run of a job has no status: a job that completes deletes it.
    lastStatus: () =>
      (reading ??=
        count <= 1
          ? Promise.resolve(undefined)
          : readStatus(redis, { prefix, driver, key }).catch(() => undefined)),
    async begun() {
      if (count === 1 && given === '') return NOTHING_BEGUN;
      const [[stored, planned], nowMs] = await Promise.all([
        redis.hmget(job, 'until', 'place'),
        redisNowMs(redis),
      ]);
      return { leftMs: leftOf(stored ?? given, nowMs), place: planned ?? '' };
    },
    async mark(doubtMs, planned) {
      const keys = { ...historyKeys(place), job, lock, ...gatewayKeys(place) };
      const answer = await markScript.run(redis, keys, { token, given, doubtMs, planned });
      if (answer.kind !== 'marked') return answer;
      const { before } = answer;
      return {
        ...answer,
        leftMs: answer.leftMs === '' ? undefined : Number(answer.leftMs),
        async undo(drops) {
          const dropsPlace = drops || before === '' ? '1' : '0';
          await unmarkScript.run(redis, { job, lock }, { token, before, dropsPlace });
        },
      };
    },
  };
}

/** @param until  Unix ms; '' = no call was begun */
function leftOf(until: string, nowMs: number): number | undefined {
  return until === '' ? undefined : Number(until) - nowMs;
}

/** Reads for people how long calls of each job may still be at work in the driver; see Begun. */
export async function showDoubts(
  { redis, prefix }: Pick<RedisPlace, 'redis' | 'prefix'>,
  queue: string,
  jobIds: readonly string[],
): Promise<readonly (number | undefined)[]> {
  const root = queueRoot(prefix, queue);
  const reads = jobIds.map((id) => redis.hmget(root + id, 'until', 'data'));
  const [nowMs, jobs] = await Promise.all([redisNowMs(redis), Promise.all(reads)]);
  return jobs.map(([stored, data]) => {
    const parsed = parseJob(parseJson(data ?? ''));
    const given = parsed.ok ? parsed.facts.until : undefined;
    return leftOf(stored ?? (given === undefined ? '' : String(given)), nowMs);
  });
}

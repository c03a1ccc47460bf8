import { performance } from 'node:perf_hooks';
import { FlowProducer, Queue } from 'bullmq';
import type { Registry } from 'prom-client';
import type { RedisLink } from '../redis/connection.ts';
import { type DriverPlace, keyPrefix, type RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import { parseJson } from '../runtime/json.ts';
import { type Logger, traceStep } from '../runtime/log.ts';
import { JOB_KINDS, jobData, type JobKind, type KeyToQueue, parseJob, workId } from './contract.ts';
import { Fairness } from './fairness.ts';
import { HISTORY_KEYS, HISTORY_LUA, historyKeys, type Term, termText } from './history.ts';
import { type ProducerMetrics, producerMetrics } from './metrics.ts';
import { queueName, queueRoot } from './queue-keys.ts';
import { promoteJob } from './queues.ts';
import { workqueueMetrics } from './workqueue-metrics.ts';

/* Adds jobs for the leader, and removes finished ones. The id of a job is the claim's UID, also for
 * the deletion of the claim's volume, so that a creation and a deletion never have jobs at the same
 * time. Our scripts use BullMQ's keys where BullMQ has no call that also checks the leader's term
 * and the history in one step (docs/leak-proof.md, J2 and J4). */

/** The leader's term, and the history of Redis' data that the leader knows. */
export interface Leading {
  readonly term: Term;
  readonly history: string;
}

/** Another process leads, or Redis has lost its data: begin again (J3). */
export class LeadershipOutdated extends Error {
  override readonly name = 'LeadershipOutdated';

  constructor() {
    super('another process leads, or Redis has lost its data: the leader looks at all keys again');
  }
}

/** A request for a job. */
export interface WorkRequest {
  readonly key: KeyToQueue;
  /** End the delay of a delayed job. */
  readonly isNow: boolean;
  /** Only for a claim; see JobFacts. */
  readonly journal?: string | undefined;
  /** How long calls of earlier jobs may be at work. */
  readonly doubtMs?: number | undefined;
}

/** What there was for a request. `active`: a run of the job is under way. `elsewhere`: the claim's
 * UID has a job in the other queue; this queue gets a job only after that one is removed. */
export type WorkState = 'added' | 'waiting' | 'delayed' | 'active' | 'finished' | 'elsewhere';

/** Lua: ends the script if another term or history is stored. */
const LEADING_LUA = `${HISTORY_LUA}
if redis.call('GET', term) ~= termOfOurs or history ~= known or not isOfHistory then
  return {'outdated'}
end
`;

/** Answers for each job id one of `absent`, `waiting`, `delayed`, `active`, `finished`,
 * `elsewhere`. Deletes a job that is in no list (after somebody deleted data by hand), since it
 * would never run; it is `absent`. */
const lookScript = defineNamedScript({
  keys: [...HISTORY_KEYS, 'root', 'otherRoot'],
  args: { termOfOurs: 'text', known: 'text', ids: 'text' },
  answers: { outdated: {}, states: { states: 'list', nowMs: 'number' } },
  lua: `${REDIS_NOW}${LEADING_LUA}local function stateOf(id)
  local data, finished = unpack(redis.call('HMGET', root .. id, 'data', 'finishedOn'))
  if not data then
    local other = redis.call('HMGET', otherRoot .. id, 'data', 'finishedOn')
    return other[1] and 'elsewhere' or 'absent'
  end
  if finished then return 'finished' end
  if redis.call('EXISTS', root .. id .. ':lock') == 1 then return 'active' end
  if redis.call('ZSCORE', root .. 'delayed', id) then return 'delayed' end
  if redis.call('ZSCORE', root .. 'prioritized', id) then return 'waiting' end
  for _, list in ipairs({'active', 'wait', 'paused'}) do
    if redis.call('LPOS', root .. list, id) then return 'waiting' end
  end
  redis.call('DEL', root .. id)
  return 'absent'
end
local states = {}
for i, id in ipairs(cjson.decode(ids)) do states[i] = stateOf(id) end
return {'states', 'states', states, 'nowMs', string.format('%.0f', now)}
`,
});

/** Returns the ids and data of the finished jobs of both queues, and the claims whose entries
 * operators asked to forget. */
const finishedScript = defineNamedScript({
  keys: [...HISTORY_KEYS, 'claims', 'volumes', 'forget'],
  args: { termOfOurs: 'text', known: 'text', most: 'number' },
  answers: {
    outdated: {},
    finished: {
      claims: 'list',
      claimDatas: 'list',
      volumes: 'list',
      volumeDatas: 'list',
      forgotten: 'list',
    },
  },
  lua: `${LEADING_LUA}local function finishedIn(root)
  local ids, datas = redis.call('ZRANGE', root .. 'completed', 0, most - 1), {}
  for i, id in ipairs(ids) do datas[i] = redis.call('HGET', root .. id, 'data') or '' end
  return ids, datas
end
local claimIds, claimDatas = finishedIn(claims)
local volumeIds, volumeDatas = finishedIn(volumes)
return {'finished', 'claims', claimIds, 'claimDatas', claimDatas, 'volumes', volumeIds,
  'volumeDatas', volumeDatas, 'forgotten', redis.call('HKEYS', forget)}
`,
});

/** Removes finished jobs, and with `isForced` unfinished ones. */
const removeScript = defineNamedScript({
  keys: [...HISTORY_KEYS, 'root', 'forget'],
  args: { termOfOurs: 'text', known: 'text', ids: 'text', isForced: 'flag' },
  answers: { outdated: {}, ok: {} },
  lua: `${LEADING_LUA}for _, id in ipairs(cjson.decode(ids)) do
  local job = root .. id
  local isRemoved = redis.call('ZREM', root .. 'completed', id) == 1
  if isForced then
    redis.call('ZREM', root .. 'delayed', id)
    redis.call('ZREM', root .. 'prioritized', id)
    redis.call('LREM', root .. 'active', 1, id)
    redis.call('HDEL', forget, id)
    isRemoved = true
  end
  if isRemoved then redis.call('DEL', job, job .. ':logs', job .. ':lock') end
end
return {'ok'}
`,
});

/** Key of the hash of the entries that operators asked to forget: claim UID to note. */
export function forgetKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:forget:${driver}`;
}

/** The kind that has no job while this kind has a job of the same UID. */
const OTHER_KIND: Readonly<Record<JobKind, JobKind>> = {
  claim: 'volume',
  volume: 'claim',
};

/** The most finished jobs that one call returns. */
const MOST_FINISHED = 5_000;
const FAIRNESS_PERIOD_MS = 250;
const EVENTS_KEPT = 5_000;

export interface WorkQueueOptions extends DriverPlace {
  /** A connection of its own, because adding watches a key until its transaction ends. */
  readonly link: RedisLink;
  /** Number of requests that Redis has not accepted yet. */
  readonly dirty: () => number;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** The ids of finished jobs. `idle`: those that have called nothing: no worker of this version
 * could read them, or they only selected a node. */
type FinishedIds = Readonly<Record<'ended' | 'idle', readonly string[]>>;

/** The finished jobs of both queues, and the claims whose entries operators asked to forget. */
export interface Finished extends Readonly<Record<JobKind, FinishedIds>> {
  readonly forgotten: readonly string[];
}

function sortFinished(
  kind: JobKind,
  ids: readonly string[],
  datas: readonly string[],
): FinishedIds {
  const mayHaveCalled = (_id: string, at: number): boolean => {
    const job = parseJob(parseJson(datas[at] ?? ''));
    return job.ok && (kind === 'volume' || job.facts.journal !== undefined);
  };
  const ended = ids.filter(mayHaveCalled);
  return { ended, idle: ids.filter((id, at) => !mayHaveCalled(id, at)) };
}

/** The queues of one driver, for the leader. Runs one call at a time. Rejects while Redis does not
 * answer. */
export class WorkQueue {
  readonly #options: WorkQueueOptions;
  readonly #place: RedisPlace;
  readonly #metrics: ProducerMetrics;
  readonly #workqueues: ReadonlyMap<JobKind, ReturnType<typeof workqueueMetrics>>;
  readonly #fairness = new Fairness();
  readonly #queues = new Map<JobKind, Queue>();
  #flow: FlowProducer | undefined;
  #turn: Promise<unknown> = Promise.resolve();
  #fairMs = 0;

  constructor(options: WorkQueueOptions) {
    const { link, driver, prefix, metrics, dirty } = options;
    this.#options = options;
    this.#place = { redis: link.redis, prefix, driver };
    checkTransactions(link.redis);
    this.#metrics = producerMetrics(metrics, { driver, dirty });
    this.#workqueues = new Map(JOB_KINDS.map((kind) => [kind, workqueueMetrics(metrics, kind)]));
  }

  /** Counts a request. */
  requested(kind: JobKind): void {
    this.#metrics.requests.inc({ driver: this.#options.driver, kind });
  }

  /** Counts a batch that Redis refused. */
  refused(): void {
    this.#metrics.rejected.inc({ driver: this.#options.driver });
  }

  /** Counts a loss of Redis' data, and closes the queues. */
  emptied(): void {
    this.#metrics.emptied.inc({ driver: this.#options.driver });
    void this.#inTurn(() => this.#closeQueues());
  }

  /** J4: adds a job for each request that has none, in one step that needs this leader's term.
   * @returns what there was for each request, in their order
   * @throws LeadershipOutdated */
  add(
    kind: JobKind,
    requests: readonly WorkRequest[],
    leading: Leading,
  ): Promise<readonly WorkState[]> {
    return this.#inTurn(() => this.#add(kind, requests, leading));
  }

  /** J2: finds the finished jobs, and the claims whose entries operators asked to forget.
   * @throws LeadershipOutdated */
  finished(leading: Leading): Promise<Finished> {
    return this.#inTurn(async () => {
      const args = { ...argsOf(leading), most: MOST_FINISHED };
      const roots = { claims: this.#rootOf('claim'), volumes: this.#rootOf('volume') };
      const keys = { ...this.#keys('claim'), ...roots };
      const answer = await finishedScript.run(this.#place.redis, keys, args);
      if (answer.kind === 'outdated') throw new LeadershipOutdated();
      const { claims, claimDatas, volumes, volumeDatas, forgotten } = answer;
      return {
        claim: sortFinished('claim', claims, claimDatas),
        volume: sortFinished('volume', volumes, volumeDatas),
        forgotten,
      };
    });
  }

  /** Removes finished jobs, so that their ids are free.
   * @param isForced  also removes unfinished ones
   * @throws LeadershipOutdated */
  remove(kind: JobKind, ids: readonly string[], leading: Leading, isForced = false): Promise<void> {
    if (ids.length === 0) return Promise.resolve();
    return this.#inTurn(async () => {
      const args = { ...argsOf(leading), ids: JSON.stringify(ids), isForced };
      const answer = await removeScript.run(this.#place.redis, this.#keys(kind), args);
      if (answer.kind === 'outdated') throw new LeadershipOutdated();
    });
  }

  /** Makes the job of a key run now if it is delayed, and does nothing otherwise. */
  promote(key: KeyToQueue): Promise<void> {
    return this.#inTurn(async () => {
      await promoteJob(await this.#openQueue(key.kind), workId(key));
    });
  }

  async close(): Promise<void> {
    this.#metrics.close();
    for (const each of this.#workqueues.values()) each.close();
    await this.#closeQueues();
  }

  async #closeQueues(): Promise<void> {
    const opened = [...this.#queues.values(), ...(this.#flow === undefined ? [] : [this.#flow])];
    this.#queues.clear();
    this.#flow = undefined;
    await Promise.allSettled(opened.map((each) => each.close()));
  }

  /** Runs one call at a time, so that a transaction has only the watches of its own call. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const next = this.#turn.then(work, work);
    this.#turn = next.catch(() => undefined);
    return next;
  }

  async #add(
    kind: JobKind,
    requests: readonly WorkRequest[],
    leading: Leading,
  ): Promise<readonly WorkState[]> {
    const { redis } = this.#place;
    const queue = await this.#openQueue(kind);
    const keys = this.#keys(kind);
    const startedMs = performance.now();
    // Sent together, WATCH first: a change after the look makes the transaction fail.
    const watching = redis.watch(keys.term, keys.jobsHistory);
    const looking = lookScript.run(redis, keys, {
      ...argsOf(leading),
      ids: JSON.stringify(requests.map(({ key }) => workId(key))),
    });
    const [, looked] = await Promise.all([watching, looking]);
    if (looked.kind === 'outdated') {
      await redis.unwatch();
      throw new LeadershipOutdated();
    }
    const found = looked.states;
    const missing = requests.filter((_, i) => found[i] === 'absent');
    await (missing.length > 0 ? this.#addMissing(kind, missing, looked.nowMs) : redis.unwatch());
    for (const [i, { key, isNow }] of requests.entries())
      if (isNow && found[i] === 'delayed') await promoteJob(queue, workId(key));
    traceStep(this.#options.log, 'enqueue', startedMs, { kind, jobs: missing.length });
    const labels = { driver: this.#options.driver, kind };
    this.#metrics.added.inc(labels, missing.length);
    this.#workqueues.get(kind)?.added(missing.length);
    this.#metrics.deduplicated.inc(labels, requests.length - missing.length);
    await this.#observeFairness(kind, queue);
    return found.map((state) => (state === 'absent' ? 'added' : (state as WorkState)));
  }

  /** Adds jobs in BullMQ's transaction, which adds nothing if a watched key has changed. */
  async #addMissing(
    kind: JobKind,
    missing: readonly WorkRequest[],
    redisNowMs: number,
  ): Promise<void> {
    const { driver, log } = this.#options;
    if (this.#flow === undefined) {
      this.#flow = new FlowProducer(this.#settings);
      this.#flow.on('error', (error: Error) => log.debug({ err: error }, 'queue connection error'));
    }
    const flows = missing.map(({ key, journal, doubtMs }) => ({
      name: kind,
      queueName: queueName(kind, driver),
      data: jobData(key, {
        ...(journal === undefined ? {} : { journal }),
        ...(doubtMs === undefined ? {} : { until: redisNowMs + doubtMs }),
      }),
      opts: {
        jobId: workId(key),
        attempts: 2_147_483_647,
        backoff: { type: 'custom' },
        stackTraceLimit: 2,
        keepLogs: 50,
        // Volumes have no namespace to be fair to: they run in order of arrival.
        ...(kind === 'claim' ? { priority: this.#fairness.next(key.namespace) } : {}),
      },
    }));
    const added = (await this.#flow.addBulk(flows)) as readonly unknown[] | undefined;
    // While BullMQ closes, it adds nothing and reports no error.
    if (added?.length !== flows.length) throw new LeadershipOutdated();
  }

  async #observeFairness(kind: JobKind, queue: Queue): Promise<void> {
    const nowMs = performance.now();
    if (kind !== 'claim' || nowMs - this.#fairMs < FAIRNESS_PERIOD_MS) return;
    this.#fairMs = nowMs;
    try {
      const [next] = await queue.getPrioritized(0, 0);
      this.#fairness.observe(next?.priority);
    } catch (error) {
      this.#options.log.debug({ err: error }, 'could not read the order of the queue');
    }
  }

  /** BullMQ's settings. Without its check of Redis' version, which fails for ever if Redis did not
   * answer once; checkSettings reports an old version. */
  get #settings() {
    const { redis: connection, prefix } = this.#place;
    return { connection, prefix: keyPrefix(prefix), skipVersionCheck: true };
  }

  async #openQueue(kind: JobKind): Promise<Queue> {
    const known = this.#queues.get(kind);
    if (known !== undefined) return known;
    const { driver, log } = this.#options;
    const queue = new Queue(queueName(kind, driver), {
      ...this.#settings,
      streams: { events: { maxLen: EVENTS_KEPT } },
    });
    queue.on('error', (error) =>
      log.debug({ err: error, queue: queue.name }, 'queue connection error'),
    );
    await queue.waitUntilReady();
    this.#queues.set(kind, queue);
    return queue;
  }

  #keys(kind: JobKind) {
    const { prefix, driver } = this.#place;
    return {
      ...historyKeys(this.#place),
      root: this.#rootOf(kind),
      otherRoot: this.#rootOf(OTHER_KIND[kind]),
      forget: forgetKey(prefix, driver),
    };
  }

  #rootOf(kind: JobKind): string {
    const { prefix, driver } = this.#place;
    return queueRoot(prefix, queueName(kind, driver));
  }
}

/** Makes transactions on this connection reject if Redis has not run them, or has refused one of
 * their commands. BullMQ's addBulk ignores both. */
function checkTransactions(redis: RedisLink['redis']): void {
  // A transaction that waits for a new connection would have lost its watched keys.
  redis.once('ready', () => (redis.options.enableOfflineQueue = false));
  const multi = redis.multi.bind(redis);
  redis.multi = ((options?: { pipeline: true }) => {
    const transaction = options === undefined ? multi() : multi(options);
    const exec = transaction.exec.bind(transaction);
    transaction.exec = async () => {
      const results = await exec().catch((cause: unknown) => {
        throw firstCause(cause);
      });
      const error = results === null ? new LeadershipOutdated() : firstError(results);
      if (error === undefined) return results;
      // ioredis sends the text of a script once for each connection. If that transaction failed,
      // Redis does not know the script, so ioredis needs a new connection.
      if (results === null || error.message.includes('NOSCRIPT')) redis.disconnect(true);
      throw error;
    };
    return transaction;
  }) as typeof redis.multi;
}

/** The command that Redis refused before it discarded the transaction. */
function firstCause(error: unknown): unknown {
  const { previousErrors } = error as { readonly previousErrors?: readonly unknown[] };
  return previousErrors?.[0] ?? error;
}

function firstError(results: readonly (readonly [Error | null, unknown])[]): Error | undefined {
  return results.find(([error]) => error !== null)?.[0] ?? undefined;
}

function argsOf({ term, history }: Leading) {
  return { termOfOurs: termText(term), known: history };
}

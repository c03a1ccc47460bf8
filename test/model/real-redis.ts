/* The side of the protocol's steps that is Redis', in a real one: what the leader's WorkQueue, the
 * marks of a run and BullMQ's moves do there for a step of the model. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type Job as BullJob, Worker } from 'bullmq';
import { Registry } from 'prom-client';
import { type JobFacts, type JobKey, type JobKind, parseJob } from '#src/queue/contract.ts';
import { type Marked, openRun } from '#src/queue/run.ts';
import {
  beginTerm,
  dropJobsOfBefore,
  historyKeys,
  readHistory,
  showHistory,
  type Term,
  termText,
} from '#src/queue/history.ts';
import { type Outcome, OutcomeApplier } from '#src/queue/outcome.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import {
  type Leading,
  LeadershipOutdated,
  WorkQueue,
  type WorkState,
} from '#src/queue/work-queue.ts';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { keyPrefix } from '#src/redis/key-prefix.ts';
import { parseJson } from '#src/runtime/json.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until as untilHolds } from '../harness/until.ts';
import { type Job, type LeaderView, TICKS, type Until } from './rules.ts';
import { type RedisData, RUN_OF, type WorkerId, WORKER_IDS } from './state.ts';

/** A tick of the model. Far longer than any test, so that real time never changes what is seen. */
const TICK_MS = 1_000_000;
export const D_MS = TICKS.doubt * TICK_MS;

const PREFIX = 'csi';
const DRIVER = 'model.example';
/** Of the claim. */
const ID = 'uid-data';
const CREATION: JobKey = { kind: 'claim', uid: ID, namespace: 'default', name: 'data' };
const DELETION: JobKey = {
  kind: 'volume',
  uid: 'uid-pvc-data',
  namespace: '',
  name: 'pvc-data',
  claimUid: ID,
};
const JOURNAL = 'model-example-journal-0';

const QUEUE_OF = { creation: 'claim', deletion: 'volume' } as const satisfies Record<
  Job['kind'],
  JobKind
>;
const JOB_KINDS = ['creation', 'deletion'] as const;
const LISTS = ['wait', 'active'] as const;
const SORTED_SETS = ['prioritized', 'delayed', 'completed', 'failed'] as const;
const PHASES: Readonly<Record<string, Job['phase']>> = {
  wait: 'waiting',
  prioritized: 'waiting',
  delayed: 'waiting',
  active: 'active',
  completed: 'finished',
};

/** A leader, or one that was replaced. */
interface RealLeader {
  readonly queue: WorkQueue;
  term: Term | undefined;
  /** Undefined until it has begun. */
  leading: Leading | undefined;
}

/** A run of a worker. */
interface RealRun {
  readonly kind: Job['kind'];
  readonly job: BullJob;
  readonly token: string;
  readonly key: JobKey;
  readonly facts: JobFacts;
  readonly end: (outcome: Outcome) => void;
  readonly ended: Promise<unknown>;
  ticks: number;
  marked: Extract<Marked, { kind: 'marked' }> | undefined;
  ticksSinceMark: number;
}

/** What the run has found as it took its job. */
interface Taken {
  readonly isFirstRun: boolean;
  readonly until: Until;
}

interface Copy {
  readonly keys: readonly (readonly [string, Buffer])[];
  ticks: number;
}

function ticksOf(leftMs: number | undefined): Until {
  return leftMs === undefined ? undefined : Math.max(0, Math.ceil(leftMs / TICK_MS));
}

function rootOf(kind: Job['kind']): string {
  return queueRoot(PREFIX, queueName(QUEUE_OF[kind], DRIVER));
}

/** @returns undefined where the call says that its leader is outdated */
async function unlessOutdated<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof LeadershipOutdated) return undefined;
    throw error;
  }
}

export class RealRedis {
  readonly #server: TestRedis;
  readonly #links: readonly RedisLink[];
  readonly #workers: readonly Readonly<Record<Job['kind'], Worker>>[];
  readonly #outcomes: OutcomeApplier;
  /** By token: how the run is to end. */
  readonly #ends = new Map<string, Promise<Outcome>>();
  #leader: RealLeader;
  #former: RealLeader;
  #transitions = 0;
  readonly #runs: [RealRun | undefined, RealRun | undefined] = [undefined, undefined];
  /** Of the worker's run, and of one that has crashed. */
  readonly #tokens: [string, string] = ['', ''];
  #copy: Copy | undefined;

  static async open(): Promise<RealRedis> {
    const server = await startTestRedis({ settings: ['appendonly no', 'save ""'] });
    const links = WORKER_IDS.map(() =>
      openRedis({ url: server.url, role: 'producer', log: silentLog }),
    );
    await untilHolds(() => links.every((link) => link.trouble === undefined), 'Redis is there');
    return new RealRedis(server, links);
  }

  private constructor(server: TestRedis, links: readonly RedisLink[]) {
    this.#server = server;
    this.#links = links;
    const [first, second] = links.map((link) => {
      const options = { link, prefix: PREFIX, driver: DRIVER, dirty: () => 0, log: silentLog };
      const queue = new WorkQueue({ ...options, metrics: new Registry() });
      return { queue, term: undefined, leading: undefined };
    });
    assert.ok(first && second);
    this.#leader = first;
    this.#former = second;
    this.#outcomes = new OutcomeApplier({
      ...this.#place,
      backoff: { startMs: 1_000, maxMs: 60_000 },
      random: () => 0.5,
      log: silentLog,
    });
    this.#workers = WORKER_IDS.map(() => ({
      creation: this.#openWorker('creation'),
      deletion: this.#openWorker('deletion'),
    }));
  }

  async close(): Promise<void> {
    const workers = this.#workers.flatMap((each) => Object.values(each));
    await Promise.all(workers.map((worker) => worker.close(true)));
    await Promise.all([this.#leader.queue.close(), this.#former.queue.close()]);
    for (const link of this.#links) link.close();
    await this.#server.close();
  }

  get #place() {
    return { redis: this.#server.redis, prefix: PREFIX, driver: DRIVER };
  }

  /** As Consumer makes it, but each job is taken when the test says so. */
  #openWorker(kind: Job['kind']): Worker {
    const worker = new Worker(
      queueName(QUEUE_OF[kind], DRIVER),
      async (job: BullJob, token = '') => {
        const outcome = await this.#ends.get(token);
        assert.ok(outcome);
        return this.#outcomes.apply({ job, token, key: undefined }, outcome);
      },
      {
        connection: this.#server.redis,
        prefix: keyPrefix(PREFIX),
        autorun: false,
        lockDuration: 3_600_000,
        maxStalledCount: 1_000_000_000,
        removeOnComplete: { count: -1 },
        removeOnFail: { count: 5_000 },
        settings: {
          backoffStrategy: (failures: number, _type?: string, error?: Error) =>
            this.#outcomes.failureDelayMs(failures, error),
        },
      },
    );
    // Of runs that have lost their job.
    worker.on('error', () => undefined);
    return worker;
  }

  /** The model's first state. */
  async reset(): Promise<void> {
    this.#crashAll();
    this.#ends.clear();
    this.#copy = undefined;
    await this.#server.redis.flushall();
    for (const each of [this.#leader, this.#former])
      Object.assign(each, { term: undefined, leading: undefined });
    this.beginLeader();
    await this.writeTerm(false);
  }

  // What Redis holds.

  /** In the words of the model. */
  async data(): Promise<RedisData> {
    const [{ isOfHistory }, term, creation, deletion] = await Promise.all([
      showHistory(this.#place),
      this.#server.redis.get(historyKeys(this.#place).term),
      this.#job('creation'),
      this.#job('deletion'),
    ]);
    assert.ok(!creation || !deletion, 'the claim’s UID has a job in both queues');
    const job = creation ?? deletion;
    return { job: job && { ...job, isOfHistory }, term: this.#ownerOf(term ?? '') };
  }

  async #job(kind: Job['kind']): Promise<Omit<Job, 'isOfHistory'> | undefined> {
    const { fields, lock, nowMs, list } = await this.#read(kind);
    const [data, stored, runs, finishedOn] = fields;
    if (typeof data !== 'string') {
      assert.equal(list, '', 'a list names a job that is gone');
      return undefined;
    }
    const phase = PHASES[list];
    assert.ok(phase, `the job is in the lists: ${list}`);
    assert.equal(phase === 'finished', typeof finishedOn === 'string');
    const parsed = parseJob(parseJson(data));
    assert.ok(parsed.ok);
    const { journal, until: given } = parsed.facts;
    assert.equal(journal, kind === 'creation' ? JOURNAL : undefined);
    if (phase === 'finished') return { kind, phase, until: undefined, isNew: false, lock: 'none' };
    const untilMs = typeof stored === 'string' ? Number(stored) : given;
    return {
      kind,
      phase,
      until: ticksOf(untilMs === undefined ? undefined : untilMs - nowMs),
      isNew: Number(runs ?? 0) === 0,
      lock: this.#holderOf(lock),
    };
  }

  async #read(kind: Job['kind']) {
    const root = rootOf(kind);
    const pipeline = this.#server.redis.pipeline();
    pipeline.hmget(root + ID, 'data', 'until', 'ats', 'finishedOn');
    pipeline.get(`${root}${ID}:lock`);
    pipeline.time();
    for (const list of LISTS) pipeline.lrange(`${root}${list}`, 0, -1);
    for (const set of SORTED_SETS) pipeline.zrange(`${root}${set}`, 0, '-1');
    const answers = await pipeline.exec();
    const failure = answers?.find(([error]) => error)?.[0];
    if (failure) throw failure;
    const values: unknown = answers?.map(([, answer]) => answer);
    const [fields, lock, [seconds, microseconds], ...lists] = values as [
      (string | null)[],
      string | null,
      [number, number],
      ...string[][],
    ];
    const names = [...LISTS, ...SORTED_SETS].filter((_, at) => lists[at]?.includes(ID));
    const nowMs = seconds * 1_000 + microseconds / 1_000;
    return { fields, lock, nowMs, list: names.join(' and ') };
  }

  #holderOf(token: string | null): Job['lock'] {
    if (token === null) return 'none';
    const id = WORKER_IDS.find((each) => this.#tokens[each] === token);
    return id === undefined ? 'ended' : RUN_OF[id];
  }

  #ownerOf(term: string): RedisData['term'] {
    if (term === '') return 'none';
    if (this.#leader.term && term === termText(this.#leader.term)) return 'leader';
    if (this.#former.term && term === termText(this.#former.term)) return 'former leader';
    return 'other';
  }

  // Leaders.

  #leaderOf(who: 'leader' | 'former leader'): RealLeader {
    return who === 'leader' ? this.#leader : this.#former;
  }

  beginLeader(): void {
    this.#transitions += 1;
    this.#leader.term = { transitions: this.#transitions, leader: randomUUID() };
    this.#leader.leading = undefined;
  }

  /** The leader dies. */
  endLeader(): void {
    this.#leader.term = undefined;
    this.#leader.leading = undefined;
  }

  /** The leader stands still, and another process may lead. */
  replaceLeader(): void {
    [this.#leader, this.#former] = [this.#former, this.#leader];
    this.endLeader();
  }

  /** J3: writes the term and reads the history. */
  async writeTerm(hasLed: boolean): Promise<void> {
    const { term } = this.#leader;
    assert.ok(term);
    const higher = await beginTerm(this.#place, term, hasLed);
    assert.equal(higher, undefined, 'a leader finds a higher term');
    const { history } = await readHistory(this.#place);
    this.#leader.leading = { term, history };
  }

  /** J3.
   * @returns whether the former leader, which has not begun yet, finds no higher term */
  async writeFormerTerm(): Promise<boolean> {
    const { term } = this.#former;
    assert.ok(term);
    return (await beginTerm(this.#place, term, false)) === undefined;
  }

  /** Makes the former leader one with this view, for tests of one script. */
  setFormer({ hasTerm, knowsHistory }: LeaderView): void {
    const { leading } = this.#leader;
    assert.ok(leading);
    this.#former.leading = {
      term: hasTerm ? leading.term : { transitions: 0, leader: 'of before' },
      history: knowsHistory ? leading.history : 'of before',
    };
  }

  /** J4.
   * @returns false where that leader is outdated */
  drop(who: 'leader' | 'former leader'): Promise<boolean> {
    const { leading } = this.#leaderOf(who);
    assert.ok(leading);
    return dropJobsOfBefore(this.#place, leading.term, leading.history);
  }

  /** J4.
   * @returns what there was, or undefined where that leader is outdated */
  async add(
    who: 'leader' | 'former leader',
    { kind, until }: Pick<Job, 'kind' | 'until'>,
  ): Promise<WorkState | undefined> {
    const { queue, leading } = this.#leaderOf(who);
    assert.ok(leading);
    const isCreation = kind === 'creation';
    const request = {
      key: isCreation ? CREATION : DELETION,
      isNow: false,
      ...(isCreation ? { journal: JOURNAL } : {}),
      ...(until === undefined ? {} : { doubtMs: until * TICK_MS }),
    };
    return (await unlessOutdated(queue.add(QUEUE_OF[kind], [request], leading)))?.[0];
  }

  /** J2.
   * @returns which jobs the leader finds finished, or undefined where it is outdated */
  async finished(who: 'leader' | 'former leader'): Promise<readonly Job['kind'][] | undefined> {
    const { queue, leading } = this.#leaderOf(who);
    assert.ok(leading);
    const found = await unlessOutdated(queue.finished(leading));
    return found && JOB_KINDS.filter((kind) => found[QUEUE_OF[kind]].ended.includes(ID));
  }

  /** J2. */
  async remove(kind: Job['kind'], who: 'leader' | 'former leader' = 'leader'): Promise<void> {
    const { queue, leading } = this.#leaderOf(who);
    assert.ok(leading);
    await unlessOutdated(queue.remove(QUEUE_OF[kind], [ID], leading));
  }

  // Runs.

  #runOf(id: WorkerId): RealRun {
    const run = this.#runs[id];
    assert.ok(run, `${RUN_OF[id]} has no run`);
    return run;
  }

  #workerOf(id: WorkerId, kind: Job['kind']): Worker {
    const worker = this.#workers[id]?.[kind];
    assert.ok(worker);
    return worker;
  }

  async take(id: WorkerId, kind: Job['kind']): Promise<Taken> {
    // The delay of a job that was given back is over.
    await this.#leader.queue.promote(kind === 'creation' ? CREATION : DELETION);
    const worker = this.#workerOf(id, kind);
    const token = randomUUID();
    const job = (await worker.getNextJob(token, { block: false })) as BullJob | undefined;
    assert.equal(job?.id, ID, 'a worker is given the job');
    let end: (outcome: Outcome) => void = () => undefined;
    this.#ends.set(token, new Promise((next) => (end = next)));
    const ended = worker.processJob(job, token, () => false);
    const parsed = parseJob(job.data);
    assert.ok(parsed.ok);
    const { key, facts } = parsed;
    this.#tokens[id] = token;
    const run = { kind, job, token, key, facts, end, ended, ticks: 0, ticksSinceMark: 0 };
    this.#runs[id] = { ...run, marked: undefined };
    const { leftMs } = await this.#openRun(this.#runOf(id)).begun();
    return { isFirstRun: job.attemptsStarted === 1, until: ticksOf(leftMs) };
  }

  #openRun({ job, token, key, facts: inJob, ticks }: RealRun) {
    const { until } = inJob;
    const facts = until === undefined ? inJob : { ...inJob, until: until - ticks * TICK_MS };
    const { signal } = new AbortController();
    return openRun(this.#place, job, { key, token, facts, signal });
  }

  /** M1.
   * @returns undefined where the run has to end */
  async mark(id: WorkerId, doubtMs = D_MS): Promise<{ readonly before: Until } | undefined> {
    const run = this.#runOf(id);
    const marked = await this.#openRun(run).mark(doubtMs, '');
    if (marked.kind !== 'marked') {
      await this.end(id, { kind: 'later', reason: marked.kind });
      return undefined;
    }
    run.marked = marked;
    run.ticksSinceMark = 0;
    return { before: ticksOf(marked.leftMs) };
  }

  /** M3. */
  async unmark(id: WorkerId): Promise<void> {
    const { kind, token, marked, ticksSinceMark } = this.#runOf(id);
    assert.ok(marked);
    const job = rootOf(kind) + ID;
    // The run remembers a time, of which the ticks since have to be taken.
    const isHeld = (await this.#server.redis.get(`${job}:lock`)) === token;
    await marked.undo(false);
    if (isHeld && marked.leftMs !== undefined && ticksSinceMark > 0)
      await this.#server.redis.hincrby(job, 'until', -ticksSinceMark * TICK_MS);
  }

  /** The run ends, and BullMQ moves its job. */
  async end(id: WorkerId, outcome: Outcome): Promise<void> {
    const run = this.#runOf(id);
    run.end(outcome);
    await run.ended;
    this.#runs[id] = undefined;
    this.#tokens[id] = '';
  }

  /** The process dies, and the lock stays. */
  crash(id: WorkerId): void {
    this.#runs[id] = undefined;
  }

  #crashAll(): void {
    for (const id of WORKER_IDS) {
      this.#runs[id] = undefined;
      this.#tokens[id] = '';
    }
  }

  /** The lock has expired, and BullMQ looks for stalled jobs, twice as it needs. */
  async stall(kind: Job['kind']): Promise<void> {
    const root = rootOf(kind);
    const { redis } = this.#server;
    for (const _ of ['marks them', 'moves them']) {
      await redis.del(`${root}${ID}:lock`, `${root}stalled-check`);
      await this.#workerOf(0, kind)['moveStalledJobsToWait']();
    }
  }

  // Redis' faults, and time.

  async empty(): Promise<void> {
    await this.#server.redis.flushall();
  }

  /** Leader, workers and Redis die together. */
  async die(): Promise<void> {
    this.#crashAll();
    this.endLeader();
    await this.empty();
  }

  async copy(): Promise<void> {
    const { redis } = this.#server;
    const keys = await redis.keys('*');
    const dumps = await Promise.all(keys.map((key) => redis.dumpBuffer(key)));
    this.#copy = { keys: keys.map((key, at) => [key, dumps[at]] as [string, Buffer]), ticks: 0 };
  }

  dropCopy(): void {
    this.#copy = undefined;
  }

  /** Redis goes back to the copy, as where a replica takes over that is behind. */
  async setBack(): Promise<void> {
    const copy = this.#copy;
    assert.ok(copy);
    const { redis } = this.#server;
    await redis.flushall();
    await Promise.all(copy.keys.map(([key, dump]) => redis.restore(key, 0, dump)));
    await this.#shift(copy.ticks);
    await this.failOver();
    for (const id of WORKER_IDS) if (this.#runs[id] === undefined) this.#tokens[id] = '';
  }

  /** Changes the id of the replication, as where a replica takes over that has all data. */
  async failOver(): Promise<void> {
    const { redis } = this.#server;
    await redis.replicaof('127.0.0.1', 1);
    await redis.call('REPLICAOF', 'NO', 'ONE');
  }

  async tick(): Promise<void> {
    await this.#shift(1);
    if (this.#copy) this.#copy.ticks += 1;
    for (const run of this.#runs) {
      if (run === undefined) continue;
      run.ticks += 1;
      run.ticksSinceMark += 1;
    }
  }

  /** Sets `until` back, since Redis' clock can't be set. */
  async #shift(ticks: number): Promise<void> {
    const { redis } = this.#server;
    for (const kind of JOB_KINDS) {
      const job = rootOf(kind) + ID;
      const [stored, text] = await redis.hmget(job, 'until', 'data');
      if (typeof stored === 'string') await redis.hincrby(job, 'until', -ticks * TICK_MS);
      const data = parseJson(text ?? '') as { until?: number } | undefined;
      if (data?.until === undefined) continue;
      await redis.hset(
        job,
        'data',
        JSON.stringify({ ...data, until: data.until - ticks * TICK_MS }),
      );
    }
  }

  /** Gives the job, which a run holds, another `until`; for tests of one script. */
  async setUntil(kind: Job['kind'], until: Until): Promise<void> {
    const { redis } = this.#server;
    const job = rootOf(kind) + ID;
    const [seconds] = await redis.time();
    if (until === undefined) await redis.hdel(job, 'until');
    else await redis.hset(job, 'until', Number(seconds) * 1_000 + until * TICK_MS);
  }
}

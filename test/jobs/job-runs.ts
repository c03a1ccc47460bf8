import assert from 'node:assert/strict';
import type { Redis } from 'ioredis';
import { Journal } from '#src/journal/journal.ts';
import type { JournalPlace } from '#src/journal/list-journal.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, Class } from '#src/kube/objects.ts';
import { Consumer } from '#src/queue/consumer.ts';
import { type KeyToQueue, keyId, workId } from '#src/queue/contract.ts';
import { type Run, showDoubts } from '#src/queue/run.ts';
import { beginTerm, dropJobsOfBefore, readHistory } from '#src/queue/history.ts';
import { type Outcome, WORKER_STOPPING } from '#src/queue/outcome.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import { type Leading, WorkQueue } from '#src/queue/work-queue.ts';
import { REACHABLE } from '../harness/queue.ts';
import { openRedis } from '#src/redis/connection.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { until } from '../harness/until.ts';

const KINDS = ['claim', 'volume'] as const;
/** No job comes again by itself, but those of a short `later`. */
const NEVER_MS = 3_600_000;

type Process = (run: Run) => Promise<Outcome>;

/** A run that a test has asked for. */
interface AskedRun {
  readonly process: Process;
  readonly end: (outcome: Outcome) => void;
}

/** How the leader adds the job of a key that has none. */
export interface NewJob {
  /** For the journal. Absent: the job names no journal object, as where nobody has noted it. */
  readonly noted?: { readonly claim: Claim; readonly cls: Class | undefined } | undefined;
  /** As after the begin of a leader: calls of an earlier job may be at work for so long. */
  readonly doubtMs?: number | undefined;
}

/** The jobs of one driver: a leader that adds them, with its journal, and the consumers that run
 * them. A run begins when a test asks for it, and not by itself. */
export class JobRuns {
  readonly #kube: KubeClient;
  readonly #driver: string;
  readonly #leaderLink;
  readonly #plain;
  readonly #connection;
  readonly #work: WorkQueue;
  #consumers: readonly Consumer[] = [];
  readonly #common;
  #journal: Journal | undefined;
  #leading: Leading | undefined;
  #transitions = 0;
  readonly #asked = new Map<string, AskedRun>();
  /** Runs that BullMQ has begun and no test has asked for yet. */
  readonly #held = new Map<string, () => void>();

  constructor(o: {
    readonly redisUrl: string;
    readonly kube: KubeClient;
    readonly driver: string;
  }) {
    const { redisUrl, kube, driver } = o;
    this.#kube = kube;
    this.#driver = driver;
    const metrics = new Registry();
    const common = { prefix: 'csi', driver, log: silentLog, metrics };
    this.#common = common;
    this.#leaderLink = openRedis({ url: redisUrl, role: 'producer', log: silentLog });
    this.#plain = openRedis({ url: redisUrl, role: 'plain', log: silentLog });
    this.#connection = openRedis({ url: redisUrl, role: 'worker', log: silentLog });
    this.#work = new WorkQueue({ ...common, link: this.#leaderLink, dirty: () => 0 });
  }

  /** The connection of runs. */
  get plain(): Redis {
    return this.#plain.redis;
  }

  get journalPlace(): JournalPlace {
    return { namespace: 'kube-system', lease: 'test-driver', driver: this.#driver };
  }

  /** Starts to take jobs, and a leader begins. */
  async open(): Promise<void> {
    const common = this.#common;
    this.#consumers = KINDS.map(
      (kind) =>
        new Consumer({
          ...common,
          link: this.#connection,
          driverState: REACHABLE,
          plain: this.#plain.redis,
          kind,
          concurrency: 1_000,
          name: 'test-worker',
          backoff: { startMs: NEVER_MS, maxMs: NEVER_MS },
          lockMs: 30_000,
          stalledCheckMs: 1_000,
          idleReadS: 5,
          process: async (key, run) => this.#process(keyId(key), run),
        }),
    );
    await this.begin();
  }

  /** A leader begins, which may find an emptied Redis. */
  async begin(): Promise<void> {
    const place = this.#place;
    this.#transitions += 1;
    const { history } = await readHistory(place);
    const term = { transitions: this.#transitions, leader: 'test-leader' };
    assert.equal(await beginTerm(place, term, false), undefined);
    assert.ok(await dropJobsOfBefore(place, term, history));
    this.#leading = { term, history };
    this.#journal ??= new Journal({
      ...this.journalPlace,
      client: this.#kube,
      holder: 'test-leader',
      onGone: () => undefined,
      log: silentLog,
    });
    await this.#journal.begin(this.#transitions, () => true);
  }

  /** Makes one run of the key's job, which is added where there is none. */
  async run(key: KeyToQueue, process: Process, o: NewJob = {}): Promise<Outcome> {
    const id = keyId(key);
    assert.ok(!this.#asked.has(id), 'a key has one run at a time');
    const outcome = new Promise<Outcome>((end) => this.#asked.set(id, { process, end }));
    await this.#add(key, o);
    this.#held.get(id)?.();
    const given = await outcome;
    const lock = `${this.#root(key)}:lock`;
    await until(
      async () => this.#held.has(id) || (await this.#leaderLink.redis.exists(lock)) === 0,
      'BullMQ has the end of the run',
    );
    return given;
  }

  /** How long calls of earlier runs may be at work; see Begun. */
  doubtMs(key: KeyToQueue): Promise<number | undefined> {
    return showDoubts(this.#place, queueName(key.kind, this.#driver), [workId(key)]).then(
      ([leftMs]) => leftMs,
    );
  }

  /** Of a key in doubt: the time is over. */
  async endDoubt(key: KeyToQueue): Promise<void> {
    const root = this.#root(key);
    if ((await this.#leaderLink.redis.exists(root)) === 1)
      await this.#leaderLink.redis.hset(root, 'until', '1');
  }

  /** Another worker has the key's job from now on. */
  async loseLock(key: KeyToQueue): Promise<void> {
    await this.#leaderLink.redis.set(`${this.#root(key)}:lock`, 'another worker', 'PX', 500);
  }

  /** The fields that BullMQ and sutler keep of a job; empty if there is none. */
  job(key: KeyToQueue): Promise<Record<string, string>> {
    return this.#leaderLink.redis.hgetall(this.#root(key));
  }

  async close(): Promise<void> {
    await Promise.all(this.#consumers.map((consumer) => consumer.close(200)));
    await this.#work.close();
    for (const link of [this.#connection, this.#plain, this.#leaderLink]) link.close();
  }

  get #place() {
    return { redis: this.#leaderLink.redis, prefix: 'csi', driver: this.#driver };
  }

  #root(key: KeyToQueue): string {
    return queueRoot('csi', queueName(key.kind, this.#driver)) + workId(key);
  }

  async #add(key: KeyToQueue, { noted, doubtMs }: NewJob): Promise<void> {
    const [leading, journal] = [this.#leading, this.#journal];
    assert.ok(leading && journal);
    for (const kind of KINDS) await this.#work.remove(kind, [workId(key)], leading);
    if (noted !== undefined) await journal.add([noted]);
    const named =
      noted === undefined ? {} : { journal: journal.objectOf(noted.claim.metadata.uid) };
    const request = { key, isNow: true, doubtMs, ...named };
    const [state] = await this.#work.add(key.kind, [request], leading);
    assert.notEqual(state, 'elsewhere', 'its creation is not over: there is no job to delete it');
  }

  async #process(id: string, run: Run): Promise<Outcome> {
    if (!this.#asked.has(id))
      await new Promise<void>((begin) => {
        this.#held.set(id, begin);
        run.signal.addEventListener('abort', () => begin(), { once: true });
      });
    this.#held.delete(id);
    const asked = this.#asked.get(id);
    if (asked === undefined) return WORKER_STOPPING;
    this.#asked.delete(id);
    const outcome = await asked.process(run);
    asked.end(outcome);
    if (outcome.kind !== 'later') return outcome;
    // The next run is one that a test asks for: no circuit breaker keeps it back.
    const { isDriverDown: _, ...rest } = outcome;
    return rest;
  }
}

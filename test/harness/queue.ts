import { Registry } from 'prom-client';
import { Dispatcher } from '#src/ingest/dispatcher.ts';
import { LeaderOnlyQueue } from '#src/ingest/leader-only-queue.ts';
import { Leadership } from '#src/ingest/leadership.ts';
import { Resync } from '#src/ingest/resync.ts';
import { Consumer, type ConsumerOptions, type Reachability } from '#src/queue/consumer.ts';
import type { Run } from '#src/queue/run.ts';
import { type JobKey, type JobKind, type KeyToQueue, workId } from '#src/queue/contract.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { WorkQueue } from '#src/queue/work-queue.ts';
import { openRedis } from '#src/redis/connection.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { beginLeading } from './leading.ts';
import type { TestRedis } from './redis.ts';
import { until } from './until.ts';

export const sleep = (ms: number): Promise<void> => new Promise((next) => setTimeout(next, ms));

export function claimKey(name: string, namespace = 'default'): JobKey {
  return { kind: 'claim', uid: `uid-${namespace}-${name}`, namespace, name };
}

export function volumeKey(name: string): JobKey {
  return { kind: 'volume', uid: `uid-${name}`, namespace: '', name };
}

/** A run as the processor saw it. */
export interface SeenRun {
  readonly key: JobKey;
  readonly run: Run;
  /** Failures of its job before this run, as BullMQ counts them; NaN without `readsFailures`. */
  readonly failures: number;
  readonly atMs: number;
  endMs?: number;
}

/** A driver that can be reached. */
export const REACHABLE: Reachability = {
  trouble: undefined,
  onChange: () => () => undefined,
  askNow: () => undefined,
};

/** Takes requests for keys of all kinds. */
export type TestProducer = ReturnType<typeof openTestProducer>;

const TICK_MS = 50;

/** Opens a queue of work for a driver, and what a leader of it has begun with. */
export async function openTestWorkQueue({ redis, url }: TestRedis, driver: string) {
  const link = openRedis({ url, role: 'producer', log: silentLog });
  await until(() => link.trouble === undefined, 'Redis can be reached');
  const place = { redis, prefix: 'csi', driver };
  const metrics = new Registry();
  const queue = new WorkQueue({ ...place, link, dirty: () => 0, log: silentLog, metrics });
  return { link, queue, leading: await beginLeading(place) };
}

/** A leader without a journal, and without an API server: what it is asked for gets jobs. */
export function openTestProducer(url: string, driver: string, metrics: Registry) {
  const link = openRedis({ url, role: 'producer', name: 'test-work', log: silentLog });
  const place = { redis: link.redis, prefix: 'csi', driver };
  const dirty = (): number => dispatcher.pending;
  const work = new WorkQueue({
    link,
    prefix: 'csi',
    driver,
    dirty,
    log: silentLog,
    metrics,
  });
  const dispatcher: Dispatcher = new Dispatcher({
    queue: work,
    journal: NO_JOURNAL,
    claimToPlan: ({ uid, namespace, name }) =>
      Promise.resolve({
        claim: { metadata: { uid, namespace, name, resourceVersion: '1' }, spec: {} },
        cls: undefined,
        needsNode: false,
      }),
    doubtMs: 60_000,
    trouble: () => link.trouble,
    onMayNeedAgain: (key) => dispatcher.ensureQueued(key),
    onOutdated: () => leadership.outdated(),
    log: silentLog,
  });
  const queue = new LeaderOnlyQueue(dispatcher, 0);
  const leadership: Leadership = new Leadership({
    namespace: 'default',
    place,
    link,
    queue,
    journal: NO_JOURNAL,
    dispatcher,
    work,
    resync: new Resync({
      // eslint-disable-next-line @typescript-eslint/require-await
      async *outstanding() {
        yield* [];
      },
      entries: () => [],
      intervalMs: Infinity,
      queue,
      clock: systemClock,
      log: silentLog,
    }),
    pause: { learn: () => undefined, forget: () => undefined },
    sweep: undefined,
    ownLeader: undefined,
    prepare: () => Promise.resolve(),
    serves: new Set(),
    driverTrouble: () => undefined,
    log: silentLog,
  });
  const seen = { lease: undefined, otherHolder: undefined };
  leadership.begin({
    isLeader: true,
    leadsForMs: Infinity,
    holder: undefined,
    transitions: 0,
    seen,
    renewNow: () => Promise.resolve(),
  });
  const ticks = setInterval(() => leadership.tick(seen), TICK_MS);
  const closed = new AbortController();
  return {
    ensureQueued: (key: KeyToQueue) => queue.ensureQueued(key),
    enqueueNow: (key: KeyToQueue) => queue.enqueueNow(key),
    promote: (key: KeyToQueue) => queue.promote(key),
    get pending() {
      return dispatcher.pending;
    },
    get trouble() {
      return link.trouble ?? leadership.trouble;
    },
    async waitUntilFlushed() {
      while (dispatcher.pending > 0 && !closed.signal.aborted) {
        await dispatcher.waitUntilFlushed();
        await sleep(2);
      }
    },
    async close() {
      closed.abort();
      clearInterval(ticks);
      await dispatcher.close();
      await work.close();
      link.close();
    },
  };
}

/** As that of an account that has no right on Leases. */
const NO_JOURNAL = {
  isOff: true,
  trouble: 'no right on Leases',
  add: () => Promise.resolve(),
  begin: () => Promise.resolve([]),
  end: () => undefined,
  finish: () => undefined,
  flush: () => Promise.resolve(),
  hasten: () => undefined,
  has: () => false,
  isFinished: () => false,
  objectOf: () => '',
  tidy: () => Promise.resolve(),
  unfinished: function* () {},
  unfinishedUids: () => [],
};

/** Producers and consumers of one test on one Redis; `close` ends them all. */
export class QueueBench {
  readonly metrics = new Registry();
  readonly runs: SeenRun[] = [];
  /** Reads the failures of a job from Redis before each run; for tests that ask for them. */
  readsFailures = false;
  readonly #redis: Pick<TestRedis, 'url'> & Partial<TestRedis>;
  readonly #driver: string;
  readonly #kind: JobKind;
  readonly #close: (() => Promise<void>)[] = [];
  /** Keys with more than one run at a time, as they happened. */
  readonly doubles: string[] = [];
  readonly #running = new Set<string>();
  readonly #connections = new Map<Consumer, { readonly close: () => unknown }>();

  /** @param kind  what consumers take where a test does not say */
  constructor(
    redis: Pick<TestRedis, 'url'> & Partial<TestRedis>,
    driver: string,
    kind: JobKind = 'claim',
  ) {
    this.#redis = redis;
    this.#driver = driver;
    this.#kind = kind;
  }

  /** What gives keys their jobs, as an ingest does that leads and has no right on Leases. */
  producer(): TestProducer {
    const producer = openTestProducer(this.#redis.url, this.#driver, this.metrics);
    this.#close.push(() => producer.close());
    return producer;
  }

  consumer(
    process: (key: JobKey, run: Run) => Outcome | Promise<Outcome>,
    o: Partial<ConsumerOptions> & {
      readonly redisUrl?: string;
    } = {},
  ): Consumer {
    const url = o.redisUrl ?? this.#redis.url;
    const link = openRedis({ url, role: 'worker', log: o.log ?? silentLog });
    const plain = openRedis({ url, role: 'plain', log: silentLog });
    const consumer = new Consumer({
      link,
      plain: plain.redis,
      driverState: REACHABLE,
      prefix: 'csi',
      driver: this.#driver,
      kind: this.#kind,
      concurrency: 20,
      name: 'test-worker',
      backoff: { startMs: 10, maxMs: 60_000 },
      log: silentLog,
      metrics: this.metrics,
      lockMs: 1000,
      stalledCheckMs: 200,
      idleReadS: 5,
      ...o,
      process: (key, run) => this.#observe(key, run, process),
    });
    this.#connections.set(consumer, { close: () => [link, plain].map((c) => c.close()) });
    this.#close.push(() => this.endProcess(consumer, 200));
    return consumer;
  }

  /** Ends a consumer as the end of its process does, which closes the connection too. */
  async endProcess(consumer: Consumer, graceMs: number): Promise<void> {
    await consumer.close(graceMs);
    this.#connections.get(consumer)?.close();
  }

  async #observe(
    key: JobKey,
    run: Run,
    process: (key: JobKey, run: Run) => Outcome | Promise<Outcome>,
  ): Promise<Outcome> {
    const failures = this.readsFailures ? await this.#readFailures(key) : Number.NaN;
    const seen: SeenRun = { key, run, failures, atMs: Date.now() };
    this.runs.push(seen);
    if (this.#running.has(key.uid)) this.doubles.push(key.uid);
    this.#running.add(key.uid);
    try {
      return await process(key, run);
    } finally {
      this.#running.delete(key.uid);
      seen.endMs = Date.now();
    }
  }

  async #readFailures(key: JobKey): Promise<number> {
    const { redis } = this.#redis;
    if (redis === undefined) return Number.NaN;
    const root = queueRoot('csi', queueName(key.kind, this.#driver));
    return Number(await redis.hget(root + workId(key), 'atm'));
  }

  runsOf(key: JobKey): SeenRun[] {
    return this.runs.filter((seen) => seen.key.uid === key.uid);
  }

  /** The counter's or gauge's value, summed over label sets that contain these. */
  async metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
    const metric = await this.metrics.getSingleMetric(name)?.get();
    const matching = (metric?.values ?? []).filter(({ labels: own }) =>
      Object.entries(labels).every(([k, v]) => own[k] === v),
    );
    return matching.reduce((sum, { value }) => sum + value, 0);
  }

  async close(): Promise<void> {
    await Promise.all(this.#close.toReversed().map((close) => close()));
  }
}

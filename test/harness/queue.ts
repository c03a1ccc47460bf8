import { Registry } from 'prom-client';
import { Consumer, type ConsumerOptions } from '#src/queue/consumer.ts';
import type { Run } from '#src/queue/run.ts';
import { type JobKey, keyId } from '#src/queue/contract.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { Producer, type ProducerOptions } from '#src/queue/producer.ts';
import {
  openProducerConnection,
  openWorkerConnection,
  type WorkerConnection,
} from '#src/queue/connections.ts';
import { silentLog } from '#src/runtime/log.ts';
import type { TestRedis } from './redis.ts';
export const sleep = (ms: number): Promise<void> => new Promise((next) => setTimeout(next, ms));

export function claimKey(name: string, namespace = 'default'): JobKey {
  return { kind: 'claim', uid: `uid-${namespace}-${name}`, namespace, name };
}

export function volumeKey(name: string): JobKey {
  return { kind: 'volume', uid: `uid-${name}`, namespace: '', name };
}

export function snapshotKey(name: string, namespace = 'default'): JobKey {
  return { kind: 'snapshot', uid: `uid-${namespace}-${name}`, namespace, name };
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

/** Producers and consumers of one test on one Redis; `close` ends them all. */
export class QueueBench {
  readonly metrics = new Registry();
  readonly runs: SeenRun[] = [];
  /** Reads the failures of a job from Redis before each run; for tests that ask for them. */
  readsFailures = false;
  readonly #redis: Pick<TestRedis, 'url'> & Partial<TestRedis>;
  readonly #driver: string;
  readonly #close: (() => Promise<void>)[] = [];
  /** Keys with more than one run at a time, as they happened. */
  readonly doubles: string[] = [];
  readonly #running = new Set<string>();
  readonly #connections = new Map<Consumer, WorkerConnection>();

  constructor(redis: Pick<TestRedis, 'url'> & Partial<TestRedis>, driver: string) {
    this.#redis = redis;
    this.#driver = driver;
  }

  producer(o: Partial<ProducerOptions> & { readonly redisUrl?: string } = {}): Producer {
    const { redisUrl = this.#redis.url, prefix = 'csi', log = silentLog } = o;
    const connection = openProducerConnection({ redisUrl, prefix, log });
    const producer = new Producer({
      connection,
      prefix: 'csi',
      driver: this.#driver,
      log: silentLog,
      metrics: this.metrics,
      ...o,
    });
    this.#close.push(async () => {
      await producer.close();
      connection.close();
    });
    return producer;
  }

  consumer(
    process: (key: JobKey, run: Run) => Outcome | Promise<Outcome>,
    o: Partial<ConsumerOptions> & {
      readonly redisUrl?: string;
      readonly onRedisEmptied?: () => void;
    } = {},
  ): Consumer {
    const connection = openWorkerConnection({
      redisUrl: o.redisUrl ?? this.#redis.url,
      prefix: 'csi',
      log: o.log ?? silentLog,
    });
    const consumer = new Consumer({
      connection,
      prefix: 'csi',
      driver: this.#driver,
      kind: 'claim',
      concurrency: 20,
      name: 'test-worker',
      backoff: { startMs: 10, maxMs: 60_000 },
      log: silentLog,
      metrics: this.metrics,
      lockMs: 1000,
      stalledCheckMs: 200,
      ...o,
      process: (key, run) => this.#observe(key, run, process),
    });
    connection.onEmptied(() => o.onRedisEmptied?.());
    this.#connections.set(consumer, connection);
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
    return Number(await redis.hget(`${root}${await redis.get(`${root}de:${keyId(key)}`)}`, 'atm'));
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

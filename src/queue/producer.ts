import { randomBytes } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { type BulkJobOptions, Queue } from 'bullmq';
import type { Registry } from 'prom-client';
import type { RedisLink } from '../redis/connection.ts';
import { type DriverPlace, keyPrefix } from '../redis/key-prefix.ts';
import { backoffMs, signalWithin, systemClock, unlessAborted } from '../runtime/clock.ts';
import { type Logger, traceStep } from '../runtime/log.ts';
import {
  JOB_KINDS,
  type JobData,
  jobData,
  jobId,
  type JobKey,
  type JobKind,
  keyId,
  type KeyToQueue,
} from './contract.ts';
import { type KeyRequest, PendingKeys } from './pending-keys.ts';
import { queueName, type QueuePlace } from './queue-keys.ts';
import { markPendingPromotion, promoteKey, registerQueues } from './queues.ts';
import { requeueLostJobs } from './lost-jobs.ts';
import { type ProducerMetrics, producerMetrics } from './metrics.ts';
import type { ProducerConnection } from './connections.ts';
import { workqueueMetrics } from './workqueue-metrics.ts';

export interface ProducerOptions extends DriverPlace {
  readonly connection: ProducerConnection;
  /** The kinds of jobs that are added, each with a queue. */
  readonly kinds: readonly JobKind[];
  readonly log: Logger;
  readonly metrics: Registry;
}

const BATCH_KEYS = 200;
/** Time from one batch to the next, on average: requests of a while are one batch. The first
 * batches after a quiet time are not delayed. */
const BATCH_PERIOD_MS = 10;
const QUICK_BATCHES = 10;
const EVENTS_KEPT = 5000;
const CLOSE_FLUSH_MS = 500;
const REGISTER_PAUSE_MS = 1_000;
/** How often a producer with requests looks whether Redis can be reached. */
const REDIS_PAUSE_MS = 50;
/** Pauses after batches that Redis refused. */
const REFUSED_PAUSE = { startMs: 100, maxMs: 2_000 };

type JobQueue = Queue<JobData, unknown, JobKind>;
type Queues = ReadonlyMap<JobKind, JobQueue>;

/** Puts requests for snapshots and for values of storage capacity into a driver's queues; those of
 * claims and volumes are the dispatcher's (src/ingest/dispatcher.ts).
 * Requests never throw and never block. Builds on contract.ts and pending-keys.ts, which keeps
 * requests until Redis takes them. */
export class Producer {
  readonly #options: ProducerOptions;
  readonly #metrics: ProducerMetrics;
  readonly #link: RedisLink;
  readonly #unsubscribe: readonly (() => void)[];
  readonly #kinds: readonly JobKind[];
  readonly #workqueues: ReadonlyMap<JobKind, ReturnType<typeof workqueueMetrics>>;
  readonly #pending = new PendingKeys();
  readonly #stopping = new AbortController();
  readonly #uniqueBase = randomBytes(6).toString('base64url');
  #serial = 0;
  /** Requests of the batch that Redis has not answered yet. */
  #adding = 0;
  #queues: Queues | undefined;
  #flushing: Promise<void> | undefined;
  /** When the next batch would be due if none was quick. */
  #batchDueMs = 0;

  constructor(options: ProducerOptions) {
    const { connection, driver } = options;
    this.#options = options;
    this.#kinds = options.kinds;
    const dirty = (): number => this.#pending.size + this.#adding;
    this.#metrics = producerMetrics(options.metrics, { driver, kinds: this.#kinds, dirty });
    this.#workqueues = new Map(
      this.#kinds.map((kind) => [kind, workqueueMetrics(options.metrics, kind)]),
    );
    this.#link = connection.link;
    this.#unsubscribe = [
      connection.onEmptied(() => void this.#register()),
      connection.link.onReady(() => void this.#register()),
    ];
    // The connection may be older than this producer.
    if (connection.link.trouble === undefined) void this.#register();
  }

  /** Makes sure that the key has a job. A job that waits or is delayed stays as it is; a key whose
   * run is under way runs once more after it. */
  ensureQueued(key: KeyToQueue): void {
    this.#request({ key, kind: 'ensure' });
  }

  /** Makes sure that the key has a job that is not delayed, for a change that makes a new run
   * worthwhile. */
  enqueueNow(key: KeyToQueue): void {
    this.#request({ key, kind: 'now' });
  }

  /** Promotes the key's job if it is delayed, and does nothing otherwise. */
  promote(key: JobKey): void {
    this.#request({ key, kind: 'promote' });
  }

  /** As the connection's. */
  get trouble(): string | undefined {
    return this.#options.connection.trouble;
  }

  /** Keys with a request that Redis has not taken yet. */
  get pending(): number {
    return this.#pending.size;
  }

  /** Resolves when Redis has taken all requests so far. */
  async waitUntilFlushed(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing;
  }

  /** Flushes for half a second at most; the next leader's resync adds the rest. */
  async close(): Promise<void> {
    const { signal } = this.#stopping;
    if (signal.aborted) return;
    if (this.#link.trouble === undefined)
      await unlessAborted(this.waitUntilFlushed(), signalWithin(signal, CLOSE_FLUSH_MS));
    this.#stopping.abort();
    for (const end of [...this.#unsubscribe, this.#metrics.close]) end();
    for (const workqueue of this.#workqueues.values()) workqueue.close();
    // A Redis that does not answer must not delay the end of a driver, whose requests are lost
    // anyway.
    await Promise.race([this.#flushing, systemClock.sleep(CLOSE_FLUSH_MS)]);
    await Promise.allSettled([...(this.#queues?.values() ?? [])].map((queue) => queue.close()));
  }

  #request(request: KeyRequest): void {
    if (this.#stopping.signal.aborted) return;
    this.#metrics.requests.inc({ driver: this.#options.driver, kind: request.key.kind });
    this.#pending.add(request);
    this.#startFlushing();
  }

  #startFlushing(): void {
    // In a microtask, so that requests of one event make one batch and none waits for a timer.
    this.#flushing ??= Promise.resolve()
      .then(() => this.#flush())
      .finally(() => {
        this.#flushing = undefined;
        if (this.#pending.size > 0 && !this.#stopping.signal.aborted) this.#startFlushing();
      });
  }

  async #flush(): Promise<void> {
    const { signal } = this.#stopping;
    let refusals = 0;
    while (this.#pending.size > 0 && !signal.aborted) {
      const queues = await this.#openQueues();
      if (queues === undefined) continue;
      await this.#pauseForBatch();
      const batch = this.#pending.take(BATCH_KEYS);
      this.#adding = batch.length;
      const isRefused = await this.#addBatch(queues, batch);
      this.#adding = 0;
      refusals = isRefused ? refusals + 1 : 0;
      if (isRefused) await systemClock.sleep(backoffMs(REFUSED_PAUSE, refusals), signal);
    }
  }

  /** Lets requests become a batch, unless the batch is full or it is one of the quick ones. */
  async #pauseForBatch(): Promise<void> {
    const aheadMs = this.#batchDueMs - performance.now();
    const pauseMs = aheadMs - (QUICK_BATCHES - 1) * BATCH_PERIOD_MS;
    if (pauseMs > 0 && this.#pending.size < BATCH_KEYS)
      await systemClock.sleep(pauseMs, this.#stopping.signal);
    const nowMs = performance.now();
    const latestMs = nowMs + QUICK_BATCHES * BATCH_PERIOD_MS;
    this.#batchDueMs = Math.min(Math.max(this.#batchDueMs, nowMs) + BATCH_PERIOD_MS, latestMs);
  }

  /** Waits until Redis is usable, and opens the queues if they are not open.
   * @returns undefined when the caller has to ask again */
  async #openQueues(): Promise<Queues | undefined> {
    if (this.#link.trouble !== undefined) {
      await systemClock.sleep(REDIS_PAUSE_MS, this.#stopping.signal);
      return undefined;
    }
    if (this.#queues !== undefined) return this.#queues;
    const queues = new Map(this.#kinds.map((kind) => [kind, this.#openQueue(kind)]));
    const opened = [...queues.values()];
    try {
      const ready = opened.map((queue) => queue.waitUntilReady());
      await this.#link.observe('queues', Promise.all(ready));
      this.#queues = queues;
      return queues;
    } catch {
      // A queue keeps the failure of its first connection for ever, so these are discarded.
      this.#metrics.rejected.inc({ driver: this.#options.driver });
      await Promise.allSettled(opened.map((queue) => queue.close()));
      await systemClock.sleep(200, this.#stopping.signal);
      return undefined;
    }
  }

  #openQueue(kind: JobKind): JobQueue {
    const queue: JobQueue = new Queue(queueName(kind, this.#options.driver), {
      connection: this.#link.redis,
      prefix: keyPrefix(this.#options.prefix),
      streams: { events: { maxLen: EVENTS_KEPT } },
      defaultJobOptions: {
        attempts: 2_147_483_647,
        backoff: { type: 'custom' },
        stackTraceLimit: 2,
        keepLogs: 50,
      },
    });
    queue.on('error', (error) =>
      this.#options.log.debug({ err: error, queue: queue.name }, 'queue connection error'),
    );
    return queue;
  }

  /** @returns whether Redis refused any requests; those are in the pending keys again */
  async #addBatch(queues: Queues, batch: readonly KeyRequest[]): Promise<boolean> {
    void this.#options.connection.flushDetector.check();
    const parts = [...queues].map(async ([kind, queue]) => {
      const requests = batch.filter(({ key }) => key.kind === kind);
      try {
        await this.#add(queue, kind, requests);
      } catch (error) {
        for (const request of requests) this.#pending.add(request);
        this.#metrics.rejected.inc({ driver: this.#options.driver });
        throw error;
      }
    });
    await Promise.allSettled(parts);
    const isRefused = await this.#link.observe('requests', Promise.all(parts)).then(
      () => false,
      () => true,
    );
    return isRefused;
  }

  async #add(queue: JobQueue, kind: JobKind, requests: readonly KeyRequest[]): Promise<void> {
    const place = { prefix: this.#options.prefix, queue: queue.name };
    const { redis } = this.#link;
    // Before the keys are added; see markPendingPromotion.
    const promotions = requests.filter((request) => request.kind !== 'ensure');
    await Promise.all(
      promotions.map((request) =>
        request.kind === 'now'
          ? markPendingPromotion(redis, place, queue, keyId(request.key))
          : promoteKey(queue, keyId(request.key)),
      ),
    );
    const adds = requests.filter((request) => request.kind !== 'promote');
    if (adds.length === 0) return;
    const jobs = adds.map((request) => ({
      name: kind,
      data: jobData(request.key),
      opts: this.#jobOptions(request.key, request.kind === 'now'),
    }));
    const startedMs = performance.now();
    const newIds = new Set(jobs.map(({ opts }) => opts.jobId));
    // For a key that has a job, BullMQ returns the id of that job.
    const deduplicated = (await queue.addBulk(jobs)).filter(({ id }) => !newIds.has(id));
    traceStep(this.#options.log, 'enqueue', startedMs, { kind, jobs: jobs.length });
    await this.#requeueLost(
      place,
      deduplicated.map(({ data }) => keyId(data)),
    );
    const labels = { driver: this.#options.driver, kind };
    this.#metrics.added.inc(labels, jobs.length - deduplicated.length);
    this.#workqueues.get(kind)?.added(jobs.length - deduplicated.length);
    this.#metrics.deduplicated.inc(labels, deduplicated.length);
  }

  /** BullMQ adds no job for a key that has one, whether that job can ever run or not. */
  async #requeueLost(place: QueuePlace, keyIds: readonly string[]): Promise<void> {
    if (keyIds.length === 0) return;
    const jobs = await requeueLostJobs(this.#link.redis, place, keyIds);
    if (jobs.length > 0)
      this.#options.log.warn(
        { queue: place.queue, jobs },
        'jobs were in no list of their queue, so that they would never have run: queued again',
      );
  }

  #jobOptions(key: JobKey, isNow: boolean): BulkJobOptions {
    this.#serial += 1;
    return {
      jobId: jobId(key, `${this.#uniqueBase}${this.#serial.toString(36)}`),
      // Tells a worker whether this job was kept during a run.
      timestamp: Date.now(),
      deduplication: {
        id: keyId(key),
        keepLastIfActive: true,
        ...(isNow ? { reschedule: true } : {}),
      },
    };
  }

  /** Registers the queues, and writes their settings as BullMQ does when it opens a queue. Called
   * after each connection and each flush, since this Redis may have neither. Tries until Redis
   * takes it. */
  async #register(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        return await this.#link.observe('registry', this.#writeRegistry());
      } catch (error) {
        this.#options.log.debug({ err: error }, 'could not register the queues; trying again');
        await systemClock.sleep(REGISTER_PAUSE_MS, signal);
      }
    }
  }

  async #writeRegistry(): Promise<void> {
    const { redis } = this.#link;
    const { driver, prefix } = this.#options;
    const entries = JOB_KINDS.map((kind) => ({ name: queueName(kind, driver), driver, kind }));
    await registerQueues(redis, prefix, entries);
    const opened = [...(this.#queues?.values() ?? [])];
    await Promise.all(opened.map((queue) => queue.getBackend().setQueueMeta(queue.metaValues)));
  }
}

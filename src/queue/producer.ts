import { randomBytes } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { type BulkJobOptions, Queue } from 'bullmq';
import type { Registry } from 'prom-client';
import type { RedisLink } from '../redis/connection.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { backoffMs, signalWithin, systemClock, unlessAborted } from '../runtime/clock.ts';
import { type Logger, traceStep } from '../runtime/log.ts';
import {
  type ClaimCopy,
  JOB_KINDS,
  type JobData,
  jobData,
  jobId,
  type JobKey,
  type JobKind,
  keyId,
  type KeyToQueue,
  sealedCopy,
  withoutCopy,
} from './contract.ts';
import { type KeyRequest, PendingKeys } from './pending-keys.ts';
import { Fairness, syncFairness } from './fairness.ts';
import { fairnessKey, queueName, type QueuePlace } from './queue-keys.ts';
import { markPendingPromotion, promoteKey, registerQueues } from './queues.ts';
import { requeueLostJobs } from './lost-jobs.ts';
import { renewCopies } from './renew-copies.ts';
import { type ProducerMetrics, producerMetrics } from './metrics.ts';
import type { ProducerConnection } from './connections.ts';
import { MAX_SILENCE_MS, WatchLifeWriter } from './watch-life.ts';
import { workqueueMetrics } from './workqueue-metrics.ts';

export interface ProducerOptions {
  readonly connection: ProducerConnection;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly driver: string;
  /** The kinds of jobs that are added; where absent, all but those of storage capacity, which is
   * off by default. Each has a queue. */
  readonly kinds?: readonly JobKind[];
  /** Jobs of claims get copies of them; absent: they don't. */
  readonly copies?: ClaimCopies | undefined;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** Where the copies of claims come from. */
export interface ClaimCopies {
  /** When the watch of claims last brought something, by performance.now(); undefined while it is
   * interrupted, and while this process does not lead. */
  readonly heardMs: () => number | undefined;
  /** @param part  all that the seal covers */
  readonly seal: (part: readonly string[]) => string;
}

const BATCH_KEYS = 200;
/** Time from one batch to the next, on average: requests of a while are one batch. The first
 * batches after a quiet time are not delayed. */
const BATCH_PERIOD_MS = 10;
const QUICK_BATCHES = 10;
const FAIRNESS_PERIOD_MS = 250;
const EVENTS_KEPT = 5000;
const CLOSE_FLUSH_MS = 500;
/** How often workers are told that the watch lives, if it has brought something since. */
const LIFE_PERIOD_MS = 1_000;
/** Not before each batch. */
const LIFE_PAUSE_MS = 500;
const REGISTER_PAUSE_MS = 1_000;
/** How often a producer with requests looks whether Redis can be reached. */
const REDIS_PAUSE_MS = 50;
/** Pauses after batches that Redis refused. */
const REFUSED_PAUSE = { startMs: 100, maxMs: 2_000 };

type JobQueue = Queue<JobData, unknown, JobKind>;
type Queues = ReadonlyMap<JobKind, JobQueue>;

/** The kinds that every driver has. */
const USUAL_KINDS = JOB_KINDS.filter((kind) => kind !== 'capacity');

/** Puts requests for keys into a driver's queues. Requests never throw and never block. Builds on
 * contract.ts and pending-keys.ts, which keeps requests until Redis takes them. */
export class Producer {
  readonly #options: ProducerOptions;
  readonly #metrics: ProducerMetrics;
  readonly #link: RedisLink;
  readonly #unsubscribe: readonly (() => void)[];
  readonly #kinds: readonly JobKind[];
  readonly #workqueues: ReadonlyMap<JobKind, ReturnType<typeof workqueueMetrics>>;
  readonly #fairness = new Fairness();
  readonly #pending = new PendingKeys();
  /** Claims that have changed since their jobs got copies, by key id. */
  readonly #renewals = new Map<string, KeyToQueue>();
  readonly #lifeTimer: NodeJS.Timeout | undefined;
  readonly #lifeWriter: WatchLifeWriter;
  /** When the life of the watch was written last, and what it was. */
  #life = { writtenMs: -Infinity, heardMs: -Infinity };
  readonly #stopping = new AbortController();
  readonly #uniqueBase = randomName();
  /** Name of the watch of claims. Another one when Redis may lack renewals of copies: for each
   * connection, and when a claim changes while no watch lives. */
  #watch = this.#uniqueBase;
  #serial = 0;
  /** Requests of the batch that Redis has not answered yet. */
  #adding = 0;
  #queues: Queues | undefined;
  #flushing: Promise<void> | undefined;
  /** When the next batch would be due if none was quick. */
  #batchDueMs = 0;
  #lastFairnessMs = 0;

  constructor(options: ProducerOptions) {
    const { connection, driver } = options;
    this.#options = options;
    this.#kinds = options.kinds ?? USUAL_KINDS;
    const dirty = (): number => this.#pending.size + this.#adding;
    this.#metrics = producerMetrics(options.metrics, { driver, kinds: this.#kinds, dirty });
    this.#workqueues = new Map(
      this.#kinds.map((kind) => [kind, workqueueMetrics(options.metrics, kind)]),
    );
    this.#link = connection.link;
    this.#lifeWriter = new WatchLifeWriter(connection.link.redis, {
      prefix: options.prefix,
      driver,
    });
    this.#unsubscribe = [
      connection.onClosed(() => (this.#watch = randomName())),
      connection.onEmptied(() => {
        this.#metrics.emptied.inc({ driver });
        void this.#register();
      }),
      connection.link.onReady(() => void this.#register()),
    ];
    if (options.copies !== undefined)
      this.#lifeTimer = setInterval(() => void this.#tellLifeWhenIdle(), LIFE_PERIOD_MS);
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

  /** The claim has changed since a job of it may have got a copy: a job that waits gets this one,
   * or none. */
  renewCopy(key: KeyToQueue): void {
    if (this.#stopping.signal.aborted || this.#options.copies === undefined) return;
    this.#pending.renew(key);
    // As in a process that does not lead: earlier copies of this one are used no more.
    if (this.#adding === 0 && this.#options.copies.heardMs() === undefined) {
      this.#watch = randomName();
      return;
    }
    this.#renewals.set(keyId(key), key);
    this.#startFlushing();
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
    clearInterval(this.#lifeTimer);
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
        if (this.#hasWork && !this.#stopping.signal.aborted) this.#startFlushing();
      });
  }

  get #hasWork(): boolean {
    return this.#pending.size + this.#renewals.size > 0;
  }

  async #flush(): Promise<void> {
    const { signal } = this.#stopping;
    let refusals = 0;
    while (this.#hasWork && !signal.aborted) {
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
      // Virtual time continues from what the queue holds.
      await this.#link.observe(
        'queues',
        Promise.all(ready).then(() => this.#syncFairness(queues)),
      );
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
    // Before the renewals are sent: those of all that the watch has brought until then.
    const heardMs = this.#options.copies?.heardMs();
    const parts = [...queues].map(async ([kind, queue]) => {
      const requests = batch.filter(({ key }) => key.kind === kind);
      try {
        if (kind === 'claim') await this.#renewCopies(queue.name);
        await this.#add(queue, kind, requests, heardMs);
      } catch (error) {
        for (const { key, kind: how } of requests)
          this.#pending.add({ key: withoutCopy(key), kind: how });
        this.#metrics.rejected.inc({ driver: this.#options.driver });
        throw error;
      }
    });
    await Promise.allSettled(parts);
    const isRefused = await this.#link.observe('requests', Promise.all(parts)).then(
      () => false,
      () => true,
    );
    if (Date.now() - this.#lastFairnessMs >= FAIRNESS_PERIOD_MS) {
      await this.#syncFairness(queues).catch((error: unknown) =>
        this.#options.log.debug({ err: error }, 'could not read the virtual time of the queue'),
      );
    }
    return isRefused;
  }

  async #add(
    queue: JobQueue,
    kind: JobKind,
    requests: readonly KeyRequest[],
    heardMs: number | undefined,
  ): Promise<void> {
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
      data: jobData(request.key, this.#copyFor(request.key)),
      opts: this.#jobOptions(request.key, request.kind === 'now'),
    }));
    // Reaches Redis before the jobs do, without waiting for its answer.
    if (jobs.some(({ data }) => data.copy !== undefined)) void this.#tellLife(heardMs);
    const startedMs = performance.now();
    const newIds = new Set(jobs.map(({ opts }) => opts.jobId));
    // For a key that has a job, BullMQ returns the id of that job.
    const deduplicated = (await queue.addBulk(jobs)).filter(({ id }) => !newIds.has(id));
    traceStep(this.#options.log, 'enqueue', startedMs, { kind, jobs: jobs.length });
    await this.#requeueLost(
      place,
      deduplicated.map(({ data }) => keyId(data)),
    );
    if (kind === 'claim')
      for (const { data } of deduplicated) this.#fairness.refund(data.namespace);
    const labels = { driver: this.#options.driver, kind };
    this.#metrics.added.inc(labels, jobs.length - deduplicated.length);
    this.#workqueues.get(kind)?.added(jobs.length - deduplicated.length);
    this.#metrics.deduplicated.inc(labels, deduplicated.length);
  }

  /** The copy for the job of a claim, while the watch lives. */
  #copyFor({ uid, claim }: KeyToQueue): ClaimCopy | undefined {
    const { copies, prefix, driver } = this.#options;
    const heardMs = copies?.heardMs();
    if (copies === undefined || claim === undefined || heardMs === undefined) return undefined;
    if (performance.now() - heardMs > MAX_SILENCE_MS) return undefined;
    const watch = this.#watch;
    return { watch, claim, seal: copies.seal(sealedCopy({ prefix, driver, uid, watch, claim })) };
  }

  /** Gives jobs that wait the copies of now. What fails is tried again with the next batch. */
  async #renewCopies(queue: string): Promise<void> {
    const place = { prefix: this.#options.prefix, queue };
    // Those that come meanwhile may be of the batch under way, and wait for the next one.
    const renewals = [...this.#renewals];
    for (let from = 0; from < renewals.length; from += BATCH_KEYS) {
      const slice = renewals.slice(from, from + BATCH_KEYS);
      const jobs = slice.map(([id, key]) => ({
        keyId: id,
        data: jobData(key, this.#copyFor(key)),
      }));
      await renewCopies(this.#link.redis, place, jobs);
      for (const [id, key] of slice) if (this.#renewals.get(id) === key) this.#renewals.delete(id);
    }
  }

  /** Tells workers that the watch lives. Never rejects: without it they read each claim.
   * @param heardMs  when it last brought something; all that it had brought by then is in Redis */
  async #tellLife(heardMs: number | undefined): Promise<void> {
    const nowMs = performance.now();
    if (heardMs === undefined || heardMs === this.#life.heardMs) return;
    if (nowMs - this.#life.writtenMs < LIFE_PAUSE_MS) return;
    this.#life = { writtenMs: nowMs, heardMs };
    await this.#lifeWriter
      .write(this.#watch, heardMs)
      .catch((error: unknown) =>
        this.#options.log.debug(
          { err: error },
          'could not tell that the watch lives; trying again',
        ),
      );
  }

  async #tellLifeWhenIdle(): Promise<void> {
    if (this.#flushing !== undefined || this.#link.trouble !== undefined) return;
    await this.#tellLife(this.#options.copies?.heardMs());
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
      // Volumes and capacity have no namespace to be fair to, and snapshots are few: these run in
      // order of arrival.
      ...(key.kind === 'claim' ? { priority: this.#fairness.next(key.namespace) } : {}),
      deduplication: {
        id: keyId(key),
        keepLastIfActive: true,
        ...(isNow ? { reschedule: true } : {}),
      },
    };
  }

  async #syncFairness(queues: Queues): Promise<void> {
    this.#lastFairnessMs = Date.now();
    const claimQueue = queues.get('claim');
    if (claimQueue === undefined) return;
    const key = fairnessKey(this.#options.prefix, claimQueue.name);
    await syncFairness(this.#link.redis, key, claimQueue, this.#fairness);
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
    const entries = this.#kinds.map((kind) => ({ name: queueName(kind, driver), driver, kind }));
    await registerQueues(redis, prefix, entries);
    const opened = [...(this.#queues?.values() ?? [])];
    await Promise.all(opened.map((queue) => queue.getBackend().setQueueMeta(queue.metaValues)));
  }
}

function randomName(): string {
  return randomBytes(6).toString('base64url');
}

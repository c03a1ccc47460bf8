import { randomBytes } from 'node:crypto';

import { Queue, type BulkJobOptions } from 'bullmq';
import type { Registry } from 'prom-client';

import { systemClock, type Clock } from '../runtime/clock.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { openRedis, type RedisLink } from '../redis/connection.ts';
import { describeRedisError } from '../redis/error-text.ts';
import { checkSettings } from '../redis/settings.ts';
import {
  JOB_KINDS,
  jobData,
  jobId,
  keyId,
  type JobData,
  type JobKey,
  type JobKind,
} from './contract.ts';
import { DirtySet, type Hint, type HintKind } from './dirty-set.ts';
import { Fairness } from './fairness.ts';
import { syncFairness } from './fairness-store.ts';
import { promoteDelayed, notePendingPromotion } from './pending-promotion.ts';
import { keyPrefix } from '../redis/key-names.ts';
import { queueName } from './key-names.ts';
import { producerMetrics, type ProducerMetrics } from './metrics.ts';
import { startFlushDetector, type FlushDetector } from '../redis/flush-detector.ts';
import { registerQueues } from './registry.ts';

/** Puts keys into a driver's queues. */
export interface Producer {
  /** Says that an object should be looked at. A key that is queued or waits to be tried again stays
   * as it is; one whose run is under way runs once more after it. Never throws, never blocks; kept
   * until Redis takes it. */
  ensureQueued(key: JobKey): void;
  /** As `ensureQueued`, and the key does not wait: its object changed in a way that makes a new try
   * worth it. */
  enqueueNow(key: JobKey): void;
  /** Ends the wait of a key that waits to be tried again; any other key stays as it is, and one
   * without a job gets none. Otherwise as `touch`. */
  promote(key: JobKey): void;
  /** Why keys don't reach Redis now, in one line; undefined when they do. For /readyz. */
  readonly trouble: string | undefined;
  /** Settings of Redis that risk volumes, one line each with its fix, as of the last connection. */
  readonly problems: readonly string[];
  /** Keys touched that are not in Redis yet. */
  readonly pending: number;
  /** Resolves when everything touched so far is in Redis. */
  flushed(): Promise<void>;
  /** Calls the listener when Redis came back or was found emptied, with the reason. */
  onRedisBack(listener: (reason: string) => void): void;
  /** Ensures that these keys are queued, spread over time. A newer call replaces an older one. */
  resync(keys: Iterable<JobKey>, reason: string): void;
  /** Flushes for half a second at most; what remains is found again by the next leader. */
  close(): Promise<void>;
}

export interface ProducerOptions {
  readonly redisUrl: string;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly driver: string;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly clock?: Clock;
  /** Over how long a re-add is spread; a lock's duration, so that runs of the time before have
   * ended. */
  readonly spreadMs?: number;
}

/** Starts to connect and returns at once.
 * @throws UsageError for an unreadable Redis URL or prefix */
export function createProducer(options: ProducerOptions): Producer {
  return new QueueProducer(options);
}

const BATCH_KEYS = 200;
const BATCH_PERIOD_MS = 10;
const RESYNC_PERIOD_MS = 100;
/** Keys a second that a re-add adds at least: a few keys need no spreading. */
const RESYNC_MIN_PER_SECOND = 100;
const FAIRNESS_PERIOD_MS = 250;
const EVENTS_KEPT = 5000;
const CLOSE_FLUSH_MS = 500;

type Queues = Readonly<Record<JobKind, Queue<JobData, unknown, JobKind>>>;

class QueueProducer implements Producer {
  readonly #options: ProducerOptions;
  readonly #clock: Clock;
  readonly #metrics: ProducerMetrics;
  readonly #link: RedisLink;
  readonly #epoch: FlushDetector;
  readonly #fairness = new Fairness();
  readonly #dirty = new DirtySet();
  readonly #redisBack = new Listeners<string>();
  readonly #stopping = new AbortController();
  readonly #uniqueBase = randomBytes(6).toString('base64url');
  #serial = 0;
  #queues: Queues | undefined;
  #pumping: Promise<void> | undefined;
  #lastBatchMs = 0;
  #lastFairnessMs = 0;
  #resyncs = 0;
  #refusal: string | undefined;
  #problems: readonly string[] = [];
  #wake: () => void = () => undefined;

  constructor(options: ProducerOptions) {
    keyPrefix(options.prefix);
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#metrics = producerMetrics(options.metrics);
    this.#link = openRedis({
      url: options.redisUrl,
      role: 'producer',
      name: `sutler-producer:${options.driver}`,
      log: options.log,
    });
    this.#epoch = startFlushDetector({
      link: this.#link,
      prefix: options.prefix,
      log: options.log,
      onEmptied: () => this.#emptied(),
    });
    this.#link.onReady((first) => {
      void this.#announce();
      if (!first) this.#redisBack.tell('Redis came back');
      this.#wake();
    });
  }

  ensureQueued(key: JobKey): void {
    this.#hint(key, 'ensure');
  }

  enqueueNow(key: JobKey): void {
    this.#hint(key, 'now');
  }

  promote(key: JobKey): void {
    this.#hint(key, 'promote');
  }

  onRedisBack(listener: (reason: string) => void): void {
    this.#redisBack.subscribe(listener);
  }

  resync(keys: Iterable<JobKey>, reason: string): void {
    const list = [...keys];
    if (list.length === 0) return;
    this.#options.log.info({ keys: list.length, reason }, 'adding outstanding keys again');
    this.#resyncs += 1;
    void this.#resyncSlowly(list, this.#resyncs);
  }

  #hint(key: JobKey, kind: HintKind): void {
    if (this.#stopping.signal.aborted) return;
    this.#metrics.hints.inc({ driver: this.#options.driver, kind: key.kind });
    this.#dirty.add(key, kind);
    this.#start();
  }

  get trouble(): string | undefined {
    return this.#link.trouble ?? this.#refusal ?? this.#epoch.trouble;
  }

  get problems(): readonly string[] {
    return this.#problems;
  }

  get pending(): number {
    return this.#dirty.size;
  }

  async flushed(): Promise<void> {
    while (this.#pumping !== undefined) await this.#pumping;
  }

  async close(): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    if (this.#link.trouble === undefined) {
      const limit = new AbortController();
      await Promise.race([this.flushed(), this.#clock.sleep(CLOSE_FLUSH_MS, limit.signal)]);
      limit.abort();
    }
    this.#stopping.abort();
    this.#epoch.stop();
    this.#link.close();
    this.#wake();
    await this.#pumping;
    await this.#closeQueues();
  }

  #start(): void {
    // A microtask: hints that arrive in one go make one batch, and the first one does not wait for
    // a timer.
    this.#pumping ??= Promise.resolve()
      .then(() => this.#pump())
      .finally(() => {
        this.#pumping = undefined;
        if (this.#dirty.size > 0 && !this.#stopping.signal.aborted) this.#start();
      });
  }

  async #pump(): Promise<void> {
    const { signal } = this.#stopping;
    let refusals = 0;
    while (this.#dirty.size > 0 && !signal.aborted) {
      const queues = await this.#ready();
      if (queues === undefined) continue;
      const pauseMs = this.#lastBatchMs + BATCH_PERIOD_MS - this.#clock.nowMs();
      if (pauseMs > 0 && this.#dirty.size < BATCH_KEYS)
        await this.#clock.sleep(Math.min(pauseMs, BATCH_PERIOD_MS), signal);
      this.#lastBatchMs = this.#clock.nowMs();
      const refused = await this.#addBatch(queues, this.#dirty.take(BATCH_KEYS));
      this.#metrics.dirty.set({ driver: this.#options.driver }, this.#dirty.size);
      refusals = refused ? refusals + 1 : 0;
      if (refused) await this.#clock.sleep(Math.min(2000, 50 * 2 ** Math.min(refusals, 6)), signal);
    }
  }

  /** The queues once Redis is usable; undefined when it has to be asked again. */
  async #ready(): Promise<Queues | undefined> {
    if (this.#link.trouble !== undefined) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        if (this.#link.trouble === undefined || this.#stopping.signal.aborted) resolve();
      });
      return undefined;
    }
    if (this.#queues !== undefined) return this.#queues;
    const queues = {
      claim: this.#openQueue('claim'),
      volume: this.#openQueue('volume'),
      snapshot: this.#openQueue('snapshot'),
    };
    try {
      await Promise.all(JOB_KINDS.map((kind) => queues[kind].waitUntilReady()));
      // What the queue holds tells where virtual time stands.
      await this.#syncFairness(queues);
      this.#queues = queues;
      return queues;
    } catch (error) {
      // BullMQ keeps the failure of its first look at Redis for ever, so a queue that met one is
      // thrown away.
      this.#refuse(error);
      await Promise.allSettled(JOB_KINDS.map((kind) => queues[kind].close()));
      await this.#clock.sleep(200, this.#stopping.signal);
      return undefined;
    }
  }

  #openQueue(kind: JobKind): Queue<JobData, unknown, JobKind> {
    const queue = new Queue<JobData, unknown, JobKind>(queueName(kind, this.#options.driver), {
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

  /** @returns whether anything was refused; refused keys are back in the dirty set */
  async #addBatch(queues: Queues, batch: readonly Hint[]): Promise<boolean> {
    void this.#epoch.check();
    const parts = JOB_KINDS.map((kind) => ({
      kind,
      hints: batch.filter((hint) => hint.key.kind === kind),
    })).filter(({ hints }) => hints.length > 0);
    const results = await Promise.allSettled(
      parts.map(({ kind, hints }) => this.#add(queues[kind], kind, hints)),
    );
    let refused = false;
    for (const [index, result] of results.entries()) {
      if (result.status === 'fulfilled') continue;
      refused = true;
      this.#dirty.putBack(parts[index]?.hints ?? []);
      this.#refuse(result.reason);
    }
    if (!refused) this.#refusal = undefined;
    if (this.#clock.nowMs() - this.#lastFairnessMs >= FAIRNESS_PERIOD_MS) {
      void this.#syncFairness(queues).catch((error: unknown) =>
        this.#options.log.debug({ err: error }, 'could not compare the order of the queue'),
      );
    }
    return refused;
  }

  async #add(
    queue: Queue<JobData, unknown, JobKind>,
    kind: JobKind,
    hints: readonly Hint[],
  ): Promise<void> {
    const place = { prefix: this.#options.prefix, queue: queue.name };
    const { redis } = this.#link;
    const promotions = hints.filter((hint) => hint.kind === 'promote');
    await Promise.all(
      promotions.map(({ key }) => promoteDelayed(redis, place, keyId(key), this.#clock.nowMs())),
    );
    const adds = hints.filter((hint) => hint.kind !== 'promote');
    if (adds.length === 0) return;
    await Promise.all(
      adds
        .filter((hint) => hint.kind === 'now')
        .map(({ key }) => notePendingPromotion(redis, place, keyId(key))),
    );
    const jobs = adds.map((hint) => ({
      name: kind,
      data: jobData(hint.key),
      opts: this.#jobOptions(hint.key, hint.kind === 'now'),
    }));
    const added = await queue.addBulk(jobs);
    let fresh = 0;
    for (const [index, job] of added.entries()) {
      if (job.id === jobs[index]?.opts.jobId) fresh += 1;
      else if (kind === 'claim') this.#fairness.refund(adds[index]?.key.namespace ?? '');
    }
    const labels = { driver: this.#options.driver, kind };
    this.#metrics.added.inc(labels, fresh);
    this.#metrics.deduplicated.inc(labels, jobs.length - fresh);
  }

  #jobOptions(key: JobKey, isNow: boolean): BulkJobOptions {
    this.#serial += 1;
    return {
      jobId: jobId(key, `${this.#uniqueBase}${this.#serial.toString(36)}`),
      // Volumes have no namespace to be fair to, and snapshots are few: they run in the order they
      // came.
      ...(key.kind === 'claim' ? { priority: this.#fairness.next(key.namespace) } : {}),
      deduplication: {
        id: keyId(key),
        keepLastIfActive: true,
        ...(isNow ? { reschedule: true } : {}),
      },
    };
  }

  async #syncFairness(queues: Queues): Promise<void> {
    this.#lastFairnessMs = this.#clock.nowMs();
    await syncFairness(this.#link.redis, this.#options.prefix, {
      queue: queues.claim,
      fairness: this.#fairness,
    });
  }

  #refuse(error: unknown): void {
    const cause = error instanceof Error ? error : new Error(String(error));
    this.#metrics.rejected.inc({ driver: this.#options.driver });
    const refusal = describeRedisError(this.#link.address, cause);
    if (refusal !== this.#refusal)
      this.#options.log.warn(
        { err: cause, redis: this.#link.address },
        'Redis refused jobs; trying again',
      );
    this.#refusal = refusal;
  }

  #emptied(): void {
    this.#metrics.emptied.inc({ driver: this.#options.driver });
    void this.#announce();
    this.#redisBack.tell('Redis was emptied');
  }

  /** Writes what others look up: which queues there are and their settings. Again after each
   * connection, since it may be another Redis. */
  async #announce(): Promise<void> {
    const { redis } = this.#link;
    const { driver, prefix, log } = this.#options;
    try {
      const entries = JOB_KINDS.map((kind) => ({ name: queueName(kind, driver), driver, kind }));
      await registerQueues(redis, prefix, entries);
      await Promise.all(
        entries.map(({ name }) =>
          redis.hset(`${keyPrefix(prefix)}:${name}:meta`, 'opts.maxLenEvents', EVENTS_KEPT),
        ),
      );
      const problems = await checkSettings(redis);
      for (const problem of problems)
        if (!this.#problems.includes(problem))
          log.warn({ redis: this.#link.address, problem }, 'Redis is not set up for this');
      this.#problems = problems;
    } catch (error) {
      // The connection broke again: the next one tries again.
      log.debug({ err: error }, 'could not write the queue registry');
    }
  }

  async #resyncSlowly(keys: readonly JobKey[], turn: number): Promise<void> {
    const { signal } = this.#stopping;
    const slices = Math.max(1, (this.#options.spreadMs ?? 30_000) / RESYNC_PERIOD_MS);
    const slice = Math.max(
      Math.ceil(keys.length / slices),
      (RESYNC_MIN_PER_SECOND * RESYNC_PERIOD_MS) / 1000,
    );
    for (let from = 0; from < keys.length; from += slice) {
      if (signal.aborted || turn !== this.#resyncs) return;
      for (const key of keys.slice(from, from + slice)) this.ensureQueued(key);
      if (from + slice < keys.length) await this.#clock.sleep(RESYNC_PERIOD_MS, signal);
    }
  }

  async #closeQueues(): Promise<void> {
    const queues = this.#queues;
    if (queues !== undefined)
      await Promise.allSettled(JOB_KINDS.map((kind) => queues[kind].close()));
  }
}

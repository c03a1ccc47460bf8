import { type Job, MetricsTime, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import type { Registry } from 'prom-client';
import type { RedisLink } from '../redis/connection.ts';
import { isDenial, isRefusal, isUnreachable } from '../redis/error-text.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { type Backoff, systemClock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import { type Logger, RareWarnings } from '../runtime/log.ts';
import { type JobFacts, type JobKey, type JobKind, keyId, parseJob } from './contract.ts';
import { openRun, type Run } from './run.ts';
import { queueName } from './queue-keys.ts';
import { type ConsumerMetrics, consumerMetrics } from './metrics.ts';
import { type Outcome, OutcomeApplier, type TakenJob } from './outcome.ts';
import { workqueueMetrics } from './workqueue-metrics.ts';

/** Whether the driver can be reached. */
export interface Reachability {
  /** Why the driver can't be reached, in one line; undefined while it can. */
  readonly trouble: string | undefined;
  /** Calls the listener when the trouble has changed.
   * @returns a function that unsubscribes */
  onChange(listener: () => void): () => void;
  /** Checks the driver now. */
  askNow(): void;
}

export interface ConsumerOptions {
  /** The connection for BullMQ; the consumers of a process share it. */
  readonly link: RedisLink;
  /** The connection for the commands of a run, which fail while Redis is away. Commands on `link`
   * wait. */
  readonly plain: Redis;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly driver: string;
  readonly kind: JobKind;
  /** Runs at once in this process. */
  readonly concurrency: number;
  /** Shown as the job's processor: the pod's name. */
  readonly name: string;
  /** Delays between the runs of a key that fails. */
  readonly backoff: Backoff;
  readonly process: (key: JobKey, run: Run) => Promise<Outcome>;
  /** The consumer takes no job while the driver can't be reached. */
  readonly driverState: Reachability;
  readonly log: Logger;
  readonly metrics: Registry;
  /** Uniform in [0, 1). */
  readonly random?: () => number;
  /** How long a job stays locked after its worker has died. */
  readonly lockMs: number;
  /** How often to check for jobs of dead workers. */
  readonly stalledCheckMs: number;
  /** How long the worker waits for a job before it asks again; 10 s at most. A connection that was
   * cut silently is replaced a second later. */
  readonly idleReadS: number;
}

const START_AGAIN_MS = 1_000;
/** Delay of a job that BullMQ gives to a worker while the worker still has a run of it. */
const BUSY_MS = 500;

/** Takes jobs from one queue and runs them. A job goes through #takeJob (decode), #runKey (lock),
 * #process (the processor of jobs/) and OutcomeApplier.apply (back to BullMQ). */
export class Consumer {
  readonly #options: ConsumerOptions;
  readonly #queue: string;
  readonly #metrics: ConsumerMetrics;
  readonly #workqueue: ReturnType<typeof workqueueMetrics>;
  readonly #labels: { readonly driver: string; readonly kind: JobKind };
  readonly #link: RedisLink;
  /** Runs under way here, by job id. An aborted run starts no more calls, but cancels none that was
   * sent (invariant 7). */
  readonly #runs = new Map<string, AbortController>();
  readonly #outcomes: OutcomeApplier;
  #worker: Worker | undefined;
  /** Why the worker could not start; undefined once it has. */
  #startTrouble: string | undefined;
  /** Changes of the worker happen one after the other, since each may wait. */
  #adjusting: Promise<void> = Promise.resolve();
  readonly #unsubscribe: () => void;
  readonly #warnings: RareWarnings;
  #isClosing = false;

  /** Takes jobs as soon as Redis can be reached. */
  constructor(options: ConsumerOptions) {
    const { link, driver, driverState, kind, prefix, backoff, log } = options;
    const { random = Math.random } = options;
    this.#options = options;
    this.#warnings = new RareWarnings(log);
    this.#queue = queueName(kind, driver);
    this.#labels = { driver, kind };
    this.#metrics = consumerMetrics(options.metrics, this.#labels, {
      inFlight: () => this.#runs.size,
      isIdle: () => this.#isIdle,
    });
    this.#workqueue = workqueueMetrics(options.metrics, kind);
    this.#link = link;
    this.#outcomes = new OutcomeApplier({
      prefix,
      driver,
      redis: link.redis,
      backoff,
      random,
      log,
    });
    this.#unsubscribe = driverState.onChange(() => void this.#adjust());
    void this.#start();
  }

  /** Whether the consumer takes no jobs, because the driver can't be reached. */
  get #isIdle(): boolean {
    return this.#options.driverState.trouble !== undefined;
  }

  /** Why no jobs arrive now, in one line for /readyz; undefined while they can. */
  get trouble(): string | undefined {
    return this.#link.trouble ?? this.#startTrouble;
  }

  /** Takes no more jobs, aborts the signals of all runs, and waits up to `graceMs` for the runs to
   * end, with or without Redis. Other workers take over the remaining jobs when their locks expire.
   */
  async close(graceMs: number): Promise<void> {
    if (this.#isClosing) return;
    this.#isClosing = true;
    this.#unsubscribe();
    this.#workqueue.close();
    const deadlineMs = Date.now() + graceMs;
    const closing = this.#worker?.close();
    let isClosed = closing === undefined;
    closing?.finally(() => (isClosed = true)).catch(() => undefined);
    for (const run of this.#runs.values()) run.abort();
    // BullMQ's close() waits for Redis. Without Redis no outcome can be stored, so the runs decide.
    const isOver = (): boolean =>
      isClosed || (this.#link.trouble !== undefined && this.#runs.size === 0);
    while (!isOver() && Date.now() < deadlineMs)
      await Promise.race([closing, systemClock.sleep(20)]);
    if (this.#runs.size > 0)
      this.#options.log.warn(
        { queue: this.#queue, runs: this.#runs.size },
        'runs did not end in time; another worker takes over their jobs',
      );
    this.#metrics.close();
  }

  /** Starts the worker as soon as Redis can be used. Discards a worker that could not start, since
   * BullMQ keeps that failure for ever. Never rejects. */
  async #start(): Promise<void> {
    const { redis } = this.#link;
    while (!this.#isClosing) {
      if (this.#link.trouble !== undefined) {
        await new Promise<void>((resolve) => redis.once('ready', () => resolve()));
        continue;
      }
      const worker = (this.#worker = this.#createWorker());
      try {
        await worker.waitUntilReady();
        this.#startTrouble = undefined;
        return await this.#adjust();
      } catch (error) {
        worker.close(true).catch(() => undefined);
        this.#worker = undefined;
        if (this.#isClosing) return;
        this.#reportStart(error);
        await systemClock.sleep(START_AGAIN_MS);
      }
    }
  }

  #reportStart(error: unknown): void {
    const trouble = `the worker of ${this.#queue} could not start: ${messageOf(error)}`;
    if (trouble !== this.#startTrouble)
      this.#options.log.error(
        { err: error, queue: this.#queue },
        'the worker could not start; trying again',
      );
    this.#startTrouble = trouble;
  }

  /** Pauses or resumes the worker. */
  #adjust(): Promise<void> {
    this.#adjusting = this.#adjusting.then(async () => {
      const worker = this.#worker;
      if (worker === undefined || this.#isClosing || this.#isIdle === worker.isPaused()) return;
      await (this.#isIdle ? worker.pause(true) : worker.resume());
    });
    return this.#adjusting;
  }

  #createWorker(): Worker {
    const { concurrency, name, prefix, lockMs, stalledCheckMs, idleReadS } = this.#options;
    const worker: Worker = new Worker(
      this.#queue,
      (job: Job, token = '') => this.#takeJob(job, token),
      {
        connection: this.#link.redis,
        prefix: keyPrefix(prefix),
        name,
        concurrency,
        // BullMQ gives both to Redis, which takes whole milliseconds only.
        lockDuration: Math.ceil(lockMs),
        stalledInterval: Math.ceil(stalledCheckMs),
        // BullMQ never resets this count, so a job that exists for long could reach a lower limit.
        maxStalledCount: 1_000_000_000,
        runRetryDelay: 1000,
        drainDelay: idleReadS,
        settings: {
          backoffStrategy: (failures: number, _type?: string, error?: Error) =>
            this.#outcomes.failureDelayMs(failures, error),
        },
        metrics: { maxDataPoints: MetricsTime.ONE_WEEK },
        // The leader removes a finished job once nothing needs to know of it.
        removeOnComplete: { count: -1 },
        removeOnFail: { count: 5000 },
      },
    );
    worker.on('lockRenewalFailed', (jobIds) => this.#lostLocks(jobIds));
    worker.on('stalled', () => this.#metrics.stalled.inc(this.#labels));
    worker.on('error', (error) => this.#reportError(error));
    if (this.#isIdle) void worker.pause(true);
    return worker;
  }

  /** Aborts the runs of these jobs, which no longer hold their locks. */
  #lostLocks(jobIds: readonly string[]): void {
    for (const jobId of jobIds) {
      const run = this.#runs.get(jobId);
      if (run === undefined || run.signal.aborted) continue;
      run.abort();
      this.#metrics.locksLost.inc(this.#labels);
      const fields = { job: jobId, queue: this.#queue };
      this.#options.log.debug(fields, 'a run lost its lock: it starts no more calls');
    }
  }

  /** Logs an error of BullMQ, unless the connection has reported it already. */
  #reportError(cause: Error): void {
    // The connection that waits for jobs is a second one, and may come back later. The process has
    // reported refusals of Redis, except a denied command that only this part sends.
    const isReported =
      this.#link.trouble !== undefined ||
      this.#isClosing ||
      isUnreachable(cause) ||
      (isRefusal(cause) && !isDenial(cause));
    // After Redis lost its data, the leader reports that and drops the old jobs.
    const isDropped = cause.message.startsWith('Missing key for job');
    const fields = { err: cause, queue: this.#queue };
    if (isReported || isDropped) this.#options.log.debug(fields, 'queue error');
    else this.#warnings.warn(fields, 'queue error');
  }

  /** Runs the key of a job. Leaves a job of a newer version to a newer worker, and completes a job
   * that no version can read. */
  async #takeJob(job: Job, token: string): Promise<string | null> {
    const parsed = parseJob(job.data);
    if (parsed.ok) return this.#runKey({ job, token, key: parsed.key }, parsed.facts);
    const { isNewer, reason } = parsed;
    const taken = { job, token, key: undefined };
    if (isNewer) return this.#applyOutcome(taken, { kind: 'later', reason });
    const { log } = this.#options;
    log.error({ job: job.id, queue: this.#queue, reason }, 'dropped a job that can’t be read');
    return this.#applyOutcome(taken, { kind: 'done', note: reason });
  }

  async #runKey(
    taken: TakenJob & { readonly key: JobKey },
    facts: JobFacts,
  ): Promise<string | null> {
    const { job, token, key } = taken;
    const { plain: redis, prefix, driver } = this.#options;
    const { id: jobId = '' } = job;
    // After an outage of Redis, BullMQ may give this worker a job whose run still goes on here.
    if (this.#runs.has(jobId)) {
      this.#lostLocks([jobId]);
      return this.#outcomes.delay(taken, BUSY_MS);
    }
    const run = new AbortController();
    this.#runs.set(jobId, run);
    const { signal } = run;
    const waitedMs = Math.max(0, Date.now() - job.timestamp);
    const endWork = this.#workqueue.begin(job.attemptsStarted === 1 ? waitedMs : undefined);
    let outcome: Outcome | undefined;
    try {
      // BullMQ hands over a job that it was fetching when the worker was paused or closed.
      if (this.#isClosing || this.#isIdle) return await this.#outcomes.returnToWait(taken);
      const opened = openRun({ redis, prefix, driver }, job, { key, token, facts, signal });
      outcome = await this.#process(key, opened);
    } finally {
      this.#runs.delete(jobId);
      endWork(outcome?.kind === 'done');
    }
    if (outcome.kind === 'later' && outcome.isDriverDown === true)
      this.#options.driverState.askNow();
    // The shutdown kept this run from the driver: another worker may take the job.
    if (this.#isClosing && outcome.kind === 'later' && signal.aborted)
      return this.#outcomes.returnToWait(taken);
    return this.#applyOutcome(taken, outcome);
  }

  async #process(key: JobKey, run: Run): Promise<Outcome> {
    const { log, name, process } = this.#options;
    try {
      return await process(key, run);
    } catch (error) {
      log.error(
        { err: error, key: keyId(key), queue: this.#queue },
        'a run failed by a defect of sutler; please report it',
      );
      // Only the error's name, since its message may contain secrets.
      const what = error instanceof Error ? error.name : typeof error;
      return { kind: 'retry', reason: `unexpected ${what}, see the log of ${name}` };
    }
  }

  #applyOutcome(taken: TakenJob, outcome: Outcome): Promise<string | null> {
    this.#metrics.runs.inc({ ...this.#labels, outcome: outcome.kind });
    return this.#outcomes.apply(taken, outcome);
  }
}

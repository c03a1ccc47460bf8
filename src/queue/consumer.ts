import { DelayedError, MetricsTime, WaitingError, Worker, type Job } from 'bullmq';
import type { Registry } from 'prom-client';

import { systemClock, type Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { pollDelayMs, retryDelayMs, type Backoff } from './backoff.ts';
import { openRedis, type RedisLink } from '../redis/connection.ts';
import { keyId, parseJob, type JobKey, type JobKind } from './contract.ts';
import { CircuitBreaker } from './circuit-breaker.ts';
import { takePendingPromotion } from './pending-promotion.ts';
import { keyPrefix } from '../redis/key-names.ts';
import { queueName } from './key-names.ts';
import { shownReason, type Outcome } from './outcome.ts';
import { startProgressWatchdog, takeableJobs, type ProgressWatchdog } from './progress-watchdog.ts';
import { consumerMetrics, type ConsumerMetrics } from './metrics.ts';
import { startFlushDetector, type FlushDetector } from '../redis/flush-detector.ts';
import { RunLocks } from './run-locks.ts';
import { clearStatus, noteStatus, readStatus, type HoldOff, type RunStatus } from './status.ts';
import { startHeartbeat, type QueueHeartbeat } from './heartbeat.ts';

/** What a run knows besides its key. */
export interface Run {
  /** Failures before this run, of this job. */
  readonly attempt: number;
  /** Shutdown, or this job's lock is gone: start no call. It must not reach a call that was sent
   * (design, invariant 9). */
  readonly signal: AbortSignal;
  readonly jobId: string;
  /** Why the key's run before this one did not end well; undefined where it did, or nobody knows
   * any more. Asks Redis, so only a run that is about to tell its own reason should want to know:
   * the same one again is no news. Never rejects. */
  readonly lastReason: () => Promise<string | undefined>;
  /** For how long an earlier run held the key on account of this, in milliseconds from now; 0 = not
   * at all, or on account of something else. Asks Redis as above. */
  readonly heldOffMs: (scope: string) => Promise<number>;
}

/** Takes jobs from one queue and runs them. */
export interface Consumer {
  /** Why no jobs arrive now, in one line; undefined when they can. For /readyz. */
  readonly trouble: string | undefined;
  /** Why this worker should be restarted, in one line: it takes nothing although jobs wait and it
   * has room. For /healthz. */
  readonly stuck: string | undefined;
  /** Runs under way. */
  readonly inFlight: number;
  /** Takes no more jobs; those under way go on. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** Takes no more jobs, aborts the leave to start calls, waits for what is under way up to
   * `graceMs`. Never hangs, Redis or not; a job that did not end is taken over by another worker
   * when its lock expires. */
  close(graceMs: number): Promise<void>;
}

export interface ConsumerOptions {
  readonly redisUrl: string;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly driver: string;
  readonly kind: JobKind;
  /** Runs at once in this process. */
  readonly concurrency: number;
  /** Shown as the job's processor: the pod's name. */
  readonly name: string;
  readonly backoff: Backoff;
  readonly process: (key: JobKey, run: Run) => Promise<Outcome>;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly clock?: Clock;
  /** Uniform in [0, 1). */
  readonly random?: () => number;
  /** How long a job stays with a worker that died. */
  readonly lockMs?: number;
  /** How often to look for jobs of dead workers. */
  readonly stalledCheckMs?: number;
  /** How long it may take nothing, while jobs wait and it has room, before it counts as stuck. */
  readonly progressMs?: number;
  /** Pauses between two tries of a driver that can't be reached. */
  readonly trialPause?: Backoff;
  /** Redis was found emptied; the signals of all runs are aborted by then. */
  readonly onRedisEmptied?: () => void;
}

/** Starts to connect and returns at once; jobs are taken as soon as Redis is there.
 * @throws UsageError for an unreadable Redis URL or prefix */
export function startConsumer(options: ConsumerOptions): Consumer {
  return new QueueConsumer(options);
}

/** Waits of keys that did not reach the driver: short, since a try costs the driver nothing. */
const LATER_MAX_MS = 30_000;
const LATER_START_MS = 500;
const POLL: Backoff = { startMs: 1000, maxMs: 30_000 };
/** A job whose earlier run still goes on here waits this long. */
const BUSY_MS = 500;
/** A key whose driver was away: the queue pauses meanwhile, so it need not wait long itself. */
const DRIVER_DOWN_MS = 1_000;
const PROGRESS_MS = 60_000;

/** Makes BullMQ count a failure; the wait before the next try is computed from it. */
class CountedFailure extends Error {
  override readonly name = 'CountedFailure';
  readonly minDelayMs: number;

  constructor(reason: string, minDelayMs: number) {
    super(reason);
    this.minDelayMs = minDelayMs;
    // BullMQ stores the stack in the job, and where this is thrown says nothing.
    this.stack = reason;
  }
}

class QueueConsumer implements Consumer {
  readonly #options: ConsumerOptions;
  readonly #queue: string;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #lockMs: number;
  readonly #metrics: ConsumerMetrics;
  readonly #labels: { readonly driver: string; readonly kind: JobKind };
  readonly #link: RedisLink;
  readonly #epoch: FlushDetector;
  readonly #guard: RunLocks;
  readonly #leaseTimer: NodeJS.Timeout;
  readonly #beat: QueueHeartbeat;
  readonly #gate: CircuitBreaker;
  readonly #progress: ProgressWatchdog;
  #steering: Promise<void> = Promise.resolve();
  #worker: Worker | undefined;
  #startTrouble: string | undefined;
  #paused = false;
  #closing = false;
  #isStarting = false;

  constructor(options: ConsumerOptions) {
    keyPrefix(options.prefix);
    this.#options = options;
    this.#queue = queueName(options.kind, options.driver);
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? Math.random;
    this.#lockMs = options.lockMs ?? 30_000;
    this.#labels = { driver: options.driver, kind: options.kind };
    this.#metrics = consumerMetrics(options.metrics);
    this.#guard = new RunLocks({
      lockMs: this.#lockMs,
      log: options.log,
      onLockLost: () => this.#metrics.locksLost.inc(this.#labels),
    });
    this.#link = openRedis({
      url: options.redisUrl,
      role: 'worker',
      name: `sutler-worker:${this.#queue}`,
      log: options.log,
    });
    this.#epoch = startFlushDetector({
      link: this.#link,
      prefix: options.prefix,
      log: options.log,
      onEmptied: () => this.#emptied(),
    });
    this.#leaseTimer = setInterval(
      () => this.#guard.expire(this.#clock.nowMs()),
      this.#lockMs / 20,
    );
    const { log, prefix } = options;
    this.#beat = startHeartbeat({ link: this.#link, prefix, queue: this.#queue, log });
    this.#gate = new CircuitBreaker({
      concurrency: options.concurrency,
      onChange: () => this.#driverChanged(),
      clock: this.#clock,
      log: log.child({ queue: this.#queue }),
      ...(options.trialPause === undefined ? {} : { pause: options.trialPause }),
    });
    this.#progress = startProgressWatchdog({
      limitMs: options.progressMs ?? PROGRESS_MS,
      queue: this.#queue,
      waiting: () =>
        takeableJobs(this.#link.redis, { prefix, queue: this.#queue }, this.#clock.nowMs()),
      isFree: () => this.#isFree,
      log,
    });
    this.#link.onReady(() => void this.#start());
  }

  get trouble(): string | undefined {
    return this.#link.trouble ?? this.#startTrouble ?? this.#beat.trouble ?? this.#gate.trouble;
  }

  get stuck(): string | undefined {
    return this.#progress.stuck;
  }

  get inFlight(): number {
    return this.#guard.size;
  }

  async pause(): Promise<void> {
    this.#paused = true;
    await this.#steer();
  }

  async resume(): Promise<void> {
    this.#paused = false;
    await this.#steer();
  }

  async close(graceMs: number): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    this.#epoch.stop();
    this.#beat.stop();
    this.#gate.stop();
    this.#progress.stop();
    const untilMs = this.#clock.nowMs() + graceMs;
    let closed = this.#worker === undefined;
    const closing = this.#worker?.close().finally(() => (closed = true));
    this.#guard.abortAll('shutdown');
    // BullMQ's own close() waits for Redis; without Redis the ends of runs can't be stored anyway.
    const settled = (): boolean =>
      closed || (this.#link.trouble !== undefined && this.#guard.size === 0);
    while (!settled() && this.#clock.nowMs() < untilMs) {
      const tick = new AbortController();
      await Promise.race([closing, this.#clock.sleep(20, tick.signal)]);
      tick.abort();
    }
    clearInterval(this.#leaseTimer);
    if (this.#guard.size > 0) {
      this.#options.log.warn(
        { queue: this.#queue, runs: this.#guard.size },
        'runs did not end in time; another worker takes their jobs over',
      );
    }
    this.#link.close();
    closing?.catch(() => undefined);
  }

  /** Starts the worker at the first connection where BullMQ gets its answers: it keeps a failure of
   * that moment for ever. */
  async #start(): Promise<void> {
    if (this.#isStarting) return;
    this.#isStarting = true;
    while (this.#worker === undefined && !this.#isClosing() && this.#link.trouble === undefined) {
      try {
        // Before anything that came due while nobody lived is taken.
        await this.#beat.check();
        if (!this.#isClosing()) await this.#startWorker();
      } catch (error) {
        if (this.#isClosing()) break;
        this.#startTrouble = `the worker of ${this.#queue} could not start: ${messageOf(error)}`;
        this.#options.log.error(
          { err: error, queue: this.#queue },
          'the worker could not start; trying again',
        );
        await this.#clock.sleep(1000);
      }
    }
    this.#isStarting = false;
  }

  async #startWorker(): Promise<void> {
    const worker = this.#createWorker();
    this.#worker = worker;
    try {
      await worker.waitUntilReady();
    } catch (error) {
      worker.close(true).catch(() => undefined);
      this.#worker = undefined;
      throw error;
    }
    this.#startTrouble = undefined;
    await this.#steer();
  }

  /** Another look at a flag that may have changed while something was awaited. */
  #isClosing(): boolean {
    return this.#closing;
  }

  /** Whether a job that waits would be taken. */
  get #isFree(): boolean {
    const isHeld = this.#paused || this.#closing || this.#gate.isLimiting;
    return (
      !isHeld && this.#link.trouble === undefined && this.#guard.size < this.#options.concurrency
    );
  }

  #driverChanged(): void {
    this.#metrics.driverDown.set(this.#labels, this.#gate.trouble === undefined ? 0 : 1);
    void this.#steer();
  }

  /** Tells BullMQ how much to take; one change after the other, since each may wait. */
  #steer(): Promise<void> {
    this.#steering = this.#steering.then(async () => {
      const worker = this.#worker;
      if (worker === undefined || this.#closing) return;
      const hadRoom = worker.concurrency;
      worker.concurrency = this.#gate.limit;
      if (this.#paused || this.#gate.isOpen) {
        if (!worker.isPaused()) await worker.pause(true);
        return;
      }
      // It waits for the end of a run before it looks whether it has more room; a pause makes it
      // look at once.
      if (worker.concurrency > hadRoom && !worker.isPaused()) await worker.pause(true);
      if (worker.isPaused()) await worker.resume();
    });
    return this.#steering;
  }

  #createWorker(): Worker {
    const { log, backoff } = this.#options;
    const worker: Worker = new Worker(
      this.#queue,
      (job: Job, token?: string) => this.#run(job, token ?? ''),
      {
        connection: this.#link.redis,
        prefix: keyPrefix(this.#options.prefix),
        name: this.#options.name,
        concurrency: this.#options.concurrency,
        lockDuration: this.#lockMs,
        stalledInterval: this.#options.stalledCheckMs ?? 5000,
        // The count is never reset, so any limit is reached by a job that lives long enough.
        maxStalledCount: 1_000_000_000,
        drainDelay: 2,
        runRetryDelay: 1000,
        settings: {
          backoffStrategy: (attempts: number, _type?: string, error?: Error) =>
            retryDelayMs(
              attempts,
              backoff,
              this.#random(),
              error instanceof CountedFailure ? error.minDelayMs : 0,
            ),
        },
        metrics: { maxDataPoints: MetricsTime.ONE_WEEK },
        removeOnComplete: { count: 1000, age: 86_400 },
        removeOnFail: { count: 5000 },
      },
    );
    worker.on('locksRenewed', ({ jobIds }) => this.#guard.renewed(jobIds, this.#clock.nowMs()));
    worker.on('lockRenewalFailed', (jobIds) => this.#guard.lost(jobIds));
    worker.on('stalled', () => this.#metrics.stalled.inc(this.#labels));
    worker.on('failed', (job) => {
      if (job?.id !== undefined) void this.#takeLateKick(job.id, parseJob(job.data));
    });
    worker.on('error', (error) => {
      // While Redis is away the connection has said so already.
      const level = this.#link.trouble === undefined && !this.#closing ? 'warn' : 'debug';
      log[level]({ err: error, queue: this.#queue }, 'queue error');
    });
    if (this.#paused) void worker.pause(true);
    return worker;
  }

  async #run(job: Job, token: string): Promise<string | null> {
    const id = job.id ?? '';
    this.#progress.progressed();
    const parsed = parseJob(job.data);
    if (!parsed.ok && !parsed.newer) {
      this.#options.log.error(
        { job: id, queue: this.#queue, reason: parsed.reason },
        'dropping a job that nobody can read',
      );
      this.#metrics.runs.inc({ ...this.#labels, outcome: 'done' });
      return parsed.reason;
    }
    if (!parsed.ok)
      return this.#settle(job, token, { kind: 'later', reason: parsed.reason }, undefined);
    const { key } = parsed;
    const startedMs = this.#clock.nowMs();
    const signal = this.#guard.begin(id, keyId(key), job.processedOn ?? startedMs);
    if (signal === undefined) return this.#delay(job, token, BUSY_MS);
    this.#metrics.inFlight.set(this.#labels, this.#guard.size);
    if (job.attemptsStarted === 1)
      this.#metrics.waitSeconds.observe(
        this.#labels,
        Math.max(0, startedMs - job.timestamp) / 1000,
      );
    let outcome: Outcome;
    try {
      // A fetch that was under way when it was told to stop still brings a job.
      if (this.#closing || this.#paused || this.#gate.isOpen)
        return await this.#handBack(job, token);
      const end = this.#gate.begin();
      outcome = await this.#process(key, {
        attempt: job.attemptsMade,
        signal,
        jobId: id,
        ...this.#past(job, key),
      });
      end(reachOf(outcome));
    } finally {
      this.#guard.end(id);
      this.#metrics.inFlight.set(this.#labels, this.#guard.size);
      this.#metrics.runSeconds.observe(this.#labels, (this.#clock.nowMs() - startedMs) / 1000);
    }
    // A run that was told to stop and did not reach the driver: another worker can have it in the
    // same millisecond.
    if (this.#closing && outcome.kind === 'later' && signal.aborted)
      return this.#handBack(job, token);
    return this.#settle(job, token, outcome, key);
  }

  async #process(key: JobKey, run: Run): Promise<Outcome> {
    try {
      return await this.#options.process(key, run);
    } catch (error) {
      this.#options.log.error(
        { err: error, key: keyId(key), queue: this.#queue },
        'a run threw: a defect of sutler, please report it',
      );
      // Only the name: nobody has checked this message for secrets.
      return {
        kind: 'retry',
        reason: `unexpected ${error instanceof Error ? error.name : typeof error}, see the log of ${this.#options.name}`,
        error,
      };
    }
  }

  /** Turns an outcome into what BullMQ does next. */
  async #settle(
    job: Job,
    token: string,
    outcome: Outcome,
    key: JobKey | undefined,
  ): Promise<string | null> {
    this.#metrics.runs.inc({ ...this.#labels, outcome: outcome.kind });
    const count = await this.#noteStatus(job, outcome, key);
    const { backoff } = this.#options;
    switch (outcome.kind) {
      case 'done':
        return outcome.note ?? null;
      case 'retry':
        throw new CountedFailure(shownReason(outcome.reason), outcome.minDelayMs ?? 0);
      case 'later': {
        if (outcome.isDriverDown === true)
          return this.#delay(
            job,
            token,
            Math.min(DRIVER_DOWN_MS, backoff.maxMs) * (0.5 + this.#random() / 2),
          );
        const ceiling = {
          startMs: Math.min(LATER_START_MS, backoff.maxMs),
          maxMs: Math.min(LATER_MAX_MS, backoff.maxMs),
        };
        return this.#delay(
          job,
          token,
          outcome.delayMs ?? retryDelayMs(count, ceiling, this.#random()),
        );
      }
      case 'running':
        return this.#delay(job, token, pollDelayMs(count, POLL, this.#random()));
      case 'parked':
        // A tenth more at random, so that what was parked together does not come back together.
        return this.#delay(job, token, backoff.maxMs * (1 + this.#random() / 10));
    }
  }

  /** @returns runs in a row that ended so; costs a command only when a run did not end well, or an
   *   earlier one had not */
  async #noteStatus(job: Job, outcome: Outcome, key: JobKey | undefined): Promise<number> {
    if (key === undefined) return job.attemptsStarted;
    const { prefix, driver } = this.#options;
    const target = { prefix, driver, uid: key.uid, key };
    if (outcome.kind === 'done') {
      if (job.attemptsStarted > 1) await clearStatus(this.#link.redis, target);
      return 0;
    }
    const nowMs = this.#clock.nowMs();
    const until = outcome.kind === 'parked' ? outcome.until : undefined;
    const holdOff = outcome.kind === 'retry' ? holdOffOf(outcome, nowMs) : undefined;
    return noteStatus(this.#link.redis, target, {
      outcome: outcome.kind,
      reason: shownReason(outcome.reason),
      atMs: nowMs,
      ...(until === undefined ? {} : { until }),
      ...(holdOff === undefined ? {} : { holdOff }),
    });
  }

  /** What the run before left behind; read once at most. */
  #past({ attemptsStarted }: Job, { uid }: JobKey): Pick<Run, 'lastReason' | 'heldOffMs'> {
    const { prefix, driver } = this.#options;
    let reading: Promise<RunStatus | undefined> | undefined;
    const status = (): Promise<RunStatus | undefined> =>
      // A job that ends takes its status along.
      (reading ??=
        attemptsStarted <= 1
          ? Promise.resolve(undefined)
          : readStatus(this.#link.redis, { prefix, driver, uid }).catch(() => undefined));
    return {
      lastReason: async () => (await status())?.reason,
      heldOffMs: async (scope) => {
        const holdOff = (await status())?.holdOff;
        return holdOff?.scope === scope ? Math.max(0, holdOff.untilMs - this.#clock.nowMs()) : 0;
      },
    };
  }

  /** Puts the job back for a while without counting a failure. */
  async #delay(job: Job, token: string, delayMs: number): Promise<never> {
    // Rounded, since BullMQ computes with the time it is told.
    await job.moveToDelayed(Math.ceil(Date.now() + Math.max(1, delayMs)), token);
    if (job.id !== undefined) await this.#takeLateKick(job.id, parseJob(job.data));
    throw new DelayedError();
  }

  /** Puts the job back for whoever is free. */
  async #handBack(job: Job, token: string): Promise<never> {
    await job.moveToWait(token);
    throw new WaitingError();
  }

  async #takeLateKick(jobId: string, parsed: ReturnType<typeof parseJob>): Promise<void> {
    if (!parsed.ok) return;
    try {
      const place = {
        prefix: this.#options.prefix,
        queue: this.#queue,
        jobId,
        keyId: keyId(parsed.key),
      };
      await takePendingPromotion(this.#link.redis, place, this.#clock.nowMs());
    } catch (error) {
      this.#options.log.debug({ err: error, job: jobId }, 'could not look for a late kick');
    }
  }

  #emptied(): void {
    this.#guard.abortAll('Redis emptied');
    this.#options.onRedisEmptied?.();
  }
}

function holdOffOf(
  { holdOffScope: scope, minDelayMs = 0 }: Extract<Outcome, { kind: 'retry' }>,
  nowMs: number,
): HoldOff | undefined {
  return scope === undefined ? undefined : { scope, untilMs: nowMs + minDelayMs };
}

/** What a run's end says of the driver. A run that ended well, or failed in its own way, got
 * through to it or had nothing to ask it. */
function reachOf(
  outcome: Outcome,
):
  { readonly kind: 'reached' | 'unknown' } | { readonly kind: 'refused'; readonly reason: string } {
  if (outcome.kind !== 'later') return { kind: 'reached' };
  return outcome.isDriverDown === true
    ? { kind: 'refused', reason: outcome.reason }
    : { kind: 'unknown' };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

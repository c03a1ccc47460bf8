import { performance } from 'node:perf_hooks';
import type { Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import type { RedisLink } from '../redis/connection.ts';
import { systemClock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { countTakeableJobs } from './queues.ts';

/** How many jobs a worker may take. */
export interface Intake {
  /** Jobs under way at once; 1 or more. */
  readonly limit: number;
  readonly isPaused: boolean;
}

interface AdjustableWorkerOptions {
  readonly queue: string;
  /** Makes a worker that connects at once. */
  readonly create: () => Worker;
  /** Runs before a worker is made; an attempt to start fails if it rejects. */
  readonly prepare: () => Promise<void>;
  readonly intake: () => Intake;
  readonly link: Pick<RedisLink, 'trouble'>;
  readonly log: Logger;
}

const START_AGAIN_MS = 1_000;

/** BullMQ's worker of one queue: starts it as soon as Redis can be used, and changes how many jobs
 * it takes. */
export class AdjustableWorker {
  readonly #options: AdjustableWorkerOptions;
  #worker: Worker | undefined;
  #trouble: string | undefined;
  #adjusting: Promise<void> = Promise.resolve();
  #isStarting = false;
  #isClosing = false;

  constructor(options: AdjustableWorkerOptions) {
    this.#options = options;
  }

  /** Why the worker could not start, in one line; undefined once it has. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** Starts the worker, if there is none, as soon as Redis can be used. A worker that could not
   * start is discarded, since BullMQ keeps that failure for ever. Never rejects. */
  async start(): Promise<void> {
    if (this.#isStarting) return;
    this.#isStarting = true;
    while (this.#worker === undefined && this.#mayStart()) {
      try {
        await this.#options.prepare();
        if (this.#mayStart()) await this.#startWorker();
      } catch (error) {
        if (this.#isClosing) break;
        this.#reportStart(error);
        await systemClock.sleep(START_AGAIN_MS);
      }
    }
    this.#isStarting = false;
  }

  /** Makes the worker follow `intake`. Changes are made one after the other, since each may
   * wait. */
  adjust(): Promise<void> {
    this.#adjusting = this.#adjusting.then(async () => {
      const worker = this.#worker;
      if (worker === undefined || this.#isClosing) return;
      const { limit, isPaused } = this.#options.intake();
      const lastLimit = worker.concurrency;
      worker.concurrency = limit;
      if (isPaused) {
        if (!worker.isPaused()) await worker.pause(true);
        return;
      }
      // A worker with no room notices a higher limit only at the end of a run, or after a pause.
      if (worker.concurrency > lastLimit && !worker.isPaused()) await worker.pause(true);
      if (worker.isPaused()) await worker.resume();
    });
    return this.#adjusting;
  }

  /** Takes no more jobs, and waits for the ends of those under way. Never ends while Redis can't
   * be reached.
   * @returns undefined if there is no worker */
  close(): Promise<void> | undefined {
    this.#isClosing = true;
    return this.#worker?.close();
  }

  #mayStart(): boolean {
    return !this.#isClosing && this.#options.link.trouble === undefined;
  }

  async #startWorker(): Promise<void> {
    const worker = this.#options.create();
    this.#worker = worker;
    try {
      await worker.waitUntilReady();
    } catch (error) {
      worker.close(true).catch(() => undefined);
      this.#worker = undefined;
      throw error;
    }
    this.#trouble = undefined;
    await this.adjust();
  }

  #reportStart(error: unknown): void {
    const { queue, log } = this.#options;
    const trouble = `the worker of ${queue} could not start: ${messageOf(error)}`;
    if (trouble !== this.#trouble)
      log.error({ err: error, queue }, 'the worker could not start; trying again');
    this.#trouble = trouble;
  }
}

export type ProgressWatchdog = ReturnType<typeof startProgressWatchdog>;

const CHECKS_PER_LIMIT = 6;

/** Reports a worker that takes nothing although jobs wait and it has room. Checks a few times
 * within the limit; asks Redis only when nothing was taken since the last check. */
export function startProgressWatchdog(options: {
  /** For how long the worker may take nothing. */
  readonly limitMs: number;
  readonly redis: Redis;
  readonly prefix: string;
  readonly queue: string;
  /** Whether the worker would take a job: it is connected, not paused, and has room. */
  readonly isFree: () => boolean;
  readonly log: Logger;
}) {
  const { redis, limitMs, log, queue, isFree } = options;
  let sinceMs: number | undefined;
  let hasTaken = false;
  let stuck: string | undefined;
  let checking: Promise<void> | undefined;

  const check = async (): Promise<void> => {
    const hadTaken = hasTaken;
    hasTaken = false;
    if (hadTaken || !isFree()) return reset();
    const count = await countTakeableJobs(redis, options).catch(() => 0);
    // A job that was taken while Redis was asked counts as progress too.
    if (hasTaken || count === 0 || !isFree()) return reset();
    sinceMs ??= performance.now();
    const forMs = performance.now() - sinceMs;
    if (forMs < limitMs) return;
    if (stuck === undefined)
      log.error(
        { queue, waiting: count },
        'the worker takes nothing although jobs wait: restart it',
      );
    stuck =
      `the worker of ${queue} has taken nothing for ${Math.round(forMs / 1000)} s ` +
      `although ${count} jobs wait and it has room: restart it`;
  };
  const reset = (): void => {
    if (stuck !== undefined) log.info({ queue }, 'the worker takes jobs again');
    sinceMs = undefined;
    stuck = undefined;
  };
  const timer = setInterval(() => {
    checking ??= check().finally(() => (checking = undefined));
  }, limitMs / CHECKS_PER_LIMIT);
  return {
    /** Why the worker should be restarted, in one line for /healthz. */
    get stuck() {
      return stuck;
    },
    /** To be called when a job was taken. */
    noteProgress: () => (hasTaken = true),
    stop: () => clearInterval(timer),
  };
}

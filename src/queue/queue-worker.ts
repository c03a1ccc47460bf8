import type { Worker } from 'bullmq';
import type { RedisLink } from '../redis/connection.ts';
import { systemClock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';

interface QueueWorkerOptions {
  readonly queue: string;
  /** Makes a worker that connects at once. */
  readonly create: () => Worker;
  /** Whether it takes no jobs now. */
  readonly isPaused: () => boolean;
  readonly link: Pick<RedisLink, 'trouble'>;
  readonly log: Logger;
}

const START_AGAIN_MS = 1_000;

/** BullMQ's worker of one queue: starts it as soon as Redis can be used, and pauses it. */
export class QueueWorker {
  readonly #options: QueueWorkerOptions;
  #worker: Worker | undefined;
  #trouble: string | undefined;
  #adjusting: Promise<void> = Promise.resolve();
  #isStarting = false;
  #isClosing = false;

  constructor(options: QueueWorkerOptions) {
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
        await this.#startWorker();
      } catch (error) {
        if (this.#isClosing) break;
        this.#reportStart(error);
        await systemClock.sleep(START_AGAIN_MS);
      }
    }
    this.#isStarting = false;
  }

  /** Makes the worker follow `isPaused`. Changes are made one after the other, since each may
   * wait. */
  adjust(): Promise<void> {
    this.#adjusting = this.#adjusting.then(async () => {
      const worker = this.#worker;
      if (worker === undefined || this.#isClosing) return;
      const isPaused = this.#options.isPaused();
      if (isPaused === worker.isPaused()) return;
      await (isPaused ? worker.pause(true) : worker.resume());
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

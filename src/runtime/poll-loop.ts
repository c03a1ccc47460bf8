import { performance } from 'node:perf_hooks';
import { type Clock, systemClock } from './clock.ts';

export interface PollLoopOptions {
  /** `signal` aborts when the loop is stopped.
   * @returns how long to pause after it, in ms; undefined: about `periodMs` */
  readonly step: (signal: AbortSignal) => Promise<number | void>;
  /** Called when a step rejects; the loop goes on after `periodMs`. */
  readonly onError: (error: unknown) => void;
  readonly periodMs: number;
  readonly clock?: Clock;
}

/** Pauses of at least this long end at its multiples, counted from the start of the process. */
const GRID_MS = 500;

/** Repeats a step until stopped: one step at a time, with a pause after each. A usual pause of half
 * a second or more may be a quarter of a second shorter or longer, so that the loops of a process
 * wake it together: most of what an idle process costs are its wake-ups. */
export class PollLoop {
  readonly #options: PollLoopOptions;
  readonly #stopped = new AbortController();
  readonly #ended: Promise<void>;
  #pause = new AbortController();

  /** Starts the first step at once. */
  constructor(options: PollLoopOptions) {
    this.#options = options;
    this.#ended = this.#run();
  }

  /** Cuts the pause short. During a step: runs another one right after it. */
  runNow(): void {
    this.#pause.abort();
  }

  /** Resolves when the step under way has ended. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    this.#pause.abort();
    await this.#ended;
  }

  async #run(): Promise<void> {
    const { step, onError, periodMs, clock = systemClock } = this.#options;
    const { signal } = this.#stopped;
    const isOnGrid = periodMs >= GRID_MS && clock === systemClock;
    while (!signal.aborted) {
      this.#pause = new AbortController();
      const asked = await step(signal).catch(onError);
      const usualMs = isOnGrid ? onGridMs(periodMs) : periodMs;
      if (!signal.aborted) await clock.sleep(asked ?? usualMs, this.#pause.signal);
    }
  }
}

function onGridMs(pauseMs: number): number {
  const nowMs = performance.now();
  return Math.round((nowMs + pauseMs) / GRID_MS) * GRID_MS - nowMs;
}

import { csiMethodPaths } from '../csi/method-paths.ts';
import { UsageError } from '../runtime/flags.ts';

/** --max-in-flight: how many calls of one method may be at the driver at once. */
export interface MaxInFlight {
  readonly every: number;
  /** By method path; overrides `every`. */
  readonly byPath: ReadonlyMap<string, number>;
}

/** Reads --max-in-flight: a number for every method, and `Method:number` or
 * `/service/Method:number` for single ones.
 * @throws UsageError */
export function parseMaxInFlight(texts: readonly string[]): MaxInFlight {
  const byPath = new Map<string, number>();
  let every = Infinity;
  for (const text of texts) {
    const match = /^(?:([^:]+):)?(\d{1,6})$/.exec(text);
    const count = Number(match?.[2]);
    if (match === null || count < 1)
      throw new UsageError(
        `--max-in-flight: "${text}" is neither a number from 1 nor Method:number`,
      );
    const method = match[1];
    if (method === undefined) every = count;
    else byPath.set(toPath(method), count);
  }
  return { every, byPath };
}

function toPath(method: string): string {
  const path = [...csiMethodPaths].find(
    (known) => known === method || known.endsWith(`/${method}`),
  );
  if (path === undefined)
    throw new UsageError(
      `--max-in-flight: CSI has no method "${method}"; write it like CreateVolume`,
    );
  return path;
}

/** Permission for one call at the driver. */
export interface CallSlot {
  /** Gives the slot back. Must be called once. */
  release(): void;
}

/** No slot is left. */
export interface LimitReached {
  readonly limit: number;
}

/** Calls of one method that may wait at once; each holds its request. */
const MAX_WAITING = 1_000;

/** Limits the calls at the driver by method. A call that finds no slot may wait for one; a slot
 * that is given back goes to the call that has waited longest. */
export class CallLimiter {
  readonly #max: MaxInFlight;
  readonly #onWaiting: (count: number) => void;
  readonly #running = new Map<string, number>();
  /** Calls that wait, by method and in the order of their arrival; each is given a slot, or
   * undefined. */
  readonly #waiting = new Map<string, Set<(slot: CallSlot | undefined) => void>>();

  /** @param onWaiting  called with the number of calls that wait for a slot when it changes */
  constructor(max: MaxInFlight, onWaiting: (count: number) => void = () => undefined) {
    this.#max = max;
    this.#onWaiting = onWaiting;
  }

  /** Takes a slot for one call of that path, if its limit leaves one. */
  acquire(path: string): CallSlot | LimitReached {
    const limit = this.#max.byPath.get(path) ?? this.#max.every;
    return this.#runningOf(path) < limit ? this.#take(path) : { limit };
  }

  /** Waits for a slot after acquire() has found none.
   * @returns undefined after `ms`, when the signal aborts, when too many wait already, and when
   *   endWaits() is called */
  waitForSlot(path: string, ms: number, signal: AbortSignal): Promise<CallSlot | undefined> {
    const waiting = this.#waiting.get(path) ?? new Set();
    this.#waiting.set(path, waiting);
    if (waiting.size >= MAX_WAITING || signal.aborted) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      const end = (slot: CallSlot | undefined): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', giveUp);
        waiting.delete(end);
        this.#reportWaiting();
        resolve(slot);
      };
      const giveUp = (): void => end(undefined);
      const timer = setTimeout(giveUp, ms);
      signal.addEventListener('abort', giveUp, { once: true });
      waiting.add(end);
      this.#reportWaiting();
    });
  }

  /** Ends the waits of all calls, without a slot. */
  endWaits(): void {
    for (const waiting of this.#waiting.values()) for (const end of waiting) end(undefined);
  }

  #runningOf(path: string): number {
    return this.#running.get(path) ?? 0;
  }

  #take(path: string): CallSlot {
    this.#running.set(path, this.#runningOf(path) + 1);
    return { release: () => this.#release(path) };
  }

  #release(path: string): void {
    this.#running.set(path, this.#runningOf(path) - 1);
    const [next] = this.#waiting.get(path) ?? [];
    next?.(this.#take(path));
  }

  #reportWaiting(): void {
    this.#onWaiting([...this.#waiting.values()].reduce((sum, { size }) => sum + size, 0));
  }
}

import { csiMethodPaths } from '../csi/method-paths.ts';
import type { Clock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { AdaptiveLimit, type LimitSample } from './adaptive-limit.ts';
import { type WaitingCall, WaitingCalls } from './waiting-calls.ts';

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
  // A full path may name a method that csi.proto does not define: it can pass with --allow-all.
  if (method.startsWith('/')) return method;
  const path = [...csiMethodPaths].find((known) => known.endsWith(`/${method}`));
  if (path === undefined)
    throw new UsageError(
      `--max-in-flight: CSI has no method "${method}"; write it like CreateVolume`,
    );
  return path;
}

/** Permission for one call at the driver. */
export interface CallSlot {
  /** Gives the slot back. Must be called once, with the code with which the call ended. */
  release(code: number): void;
}

/** The limit that leaves no slot for another call; `why` is the flag that set it. */
export interface LimitReached {
  readonly limit: number;
  readonly why: 'max-in-flight' | 'adaptive-limit';
}

export interface CallLimiterOptions {
  readonly max: MaxInFlight;
  /** Whether to find a lower limit than `max` from the driver's answers. */
  readonly adaptive: boolean;
  readonly clock: Clock;
  /** Called with each adaptive limit when it is set and when it changes. */
  readonly onLimit?: (path: string, limit: number) => void;
  /** Called with the number of calls that wait for a slot when it changes. */
  readonly onWaiting?: (count: number) => void;
}

/** Initial adaptive limit: upstream's default number of workers. */
const ADAPTIVE_START = 100;
/** Memory of the calls that wait for a slot: about 1,200 calls of the usual size. */
const MAX_WAITING_BYTES = 32 * 1024 * 1024;

/** Limits the calls at the driver by method. A call that finds no slot may wait for one, and a slot
 * that is given back goes to the call whose turn it is. */
export class CallLimiter {
  readonly #options: CallLimiterOptions;
  readonly #running = new Map<string, number>();
  readonly #adaptive = new Map<string, AdaptiveLimit>();
  readonly #waiting: WaitingCalls<CallSlot>;

  constructor(options: CallLimiterOptions) {
    this.#options = options;
    const { onWaiting: onChange = () => undefined } = options;
    this.#waiting = new WaitingCalls({ maxBytes: MAX_WAITING_BYTES, onChange });
  }

  /** Takes a slot for one call of that path, if its limit leaves one. */
  acquire(path: string): CallSlot | LimitReached {
    return this.#findReached(path) ?? this.#take(path);
  }

  /** Waits for a slot after acquire() has found none.
   * @returns undefined after `ms`, when the call was cancelled or lost its place, and when
   *   endWaits() is called */
  waitForSlot(call: WaitingCall, ms: number): Promise<CallSlot | undefined> {
    return this.#waiting.wait(call, ms);
  }

  /** Ends the waits of all calls, without a slot. */
  endWaits(): void {
    this.#waiting.endAll();
  }

  /** The limit that leaves no slot for another call of that path; undefined if there is one. */
  #findReached(path: string): LimitReached | undefined {
    const running = this.#running.get(path) ?? 0;
    const max = this.#options.max.byPath.get(path) ?? this.#options.max.every;
    if (running >= max) return { limit: max, why: 'max-in-flight' };
    const adaptive = this.#adaptiveLimitOf(path, max);
    return adaptive !== undefined && running >= adaptive.limit
      ? { limit: adaptive.limit, why: 'adaptive-limit' }
      : undefined;
  }

  #take(path: string): CallSlot {
    this.#running.set(path, (this.#running.get(path) ?? 0) + 1);
    const startedMs = this.#options.clock.nowMs();
    return { release: (code) => this.#release(path, code, startedMs) };
  }

  #release(path: string, code: number, startedMs: number): void {
    const running = this.#running.get(path) ?? 1;
    // With --allow-all callers choose the paths, so entries at 0 must not accumulate.
    if (running === 1) this.#running.delete(path);
    else this.#running.set(path, running - 1);
    this.#adapt(path, { startedMs, endedMs: this.#options.clock.nowMs(), code }, running);
    let hasGiven = true;
    while (hasGiven && this.#findReached(path) === undefined)
      hasGiven = this.#waiting.giveNext(path, () => this.#take(path));
  }

  #adapt(path: string, sample: LimitSample, running: number): void {
    const adaptive = this.#adaptive.get(path);
    if (adaptive === undefined) return;
    const before = adaptive.limit;
    adaptive.observe(sample, running);
    if (adaptive.limit !== before) this.#options.onLimit?.(path, adaptive.limit);
  }

  #adaptiveLimitOf(path: string, max: number): AdaptiveLimit | undefined {
    if (!this.#options.adaptive || !csiMethodPaths.has(path)) return undefined;
    let adaptive = this.#adaptive.get(path);
    if (adaptive === undefined) {
      adaptive = new AdaptiveLimit({ start: ADAPTIVE_START, max });
      this.#adaptive.set(path, adaptive);
      this.#options.onLimit?.(path, adaptive.limit);
    }
    return adaptive;
  }
}

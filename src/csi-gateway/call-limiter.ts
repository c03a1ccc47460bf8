import { csiMethodPaths } from '../csi/method-paths.ts';
import type { Clock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { AdaptiveLimit } from './adaptive-limit.ts';

/** --max-in-flight: calls of one method that may be at the driver at once. */
export interface MaxInFlight {
  readonly every: number;
  /** By path; beats `every`. */
  readonly byPath: ReadonlyMap<string, number>;
}

/** Reads --max-in-flight: a number for every method, `Method:number` or `/service/Method:number`
 * for one.
 * @throws UsageError */
export function parseMaxInFlight(flag: string, texts: readonly string[]): MaxInFlight {
  const byPath = new Map<string, number>();
  let every = Infinity;
  for (const text of texts) {
    const match = /^(?:([^:]+):)?(\d{1,6})$/.exec(text);
    const count = Number(match?.[2]);
    if (match === null || count < 1)
      throw new UsageError(`--${flag}: "${text}" is neither a number from 1 nor Method:number`);
    const method = match[1];
    if (method === undefined) every = count;
    else byPath.set(pathOf(flag, method), count);
  }
  return { every, byPath };
}

function pathOf(flag: string, method: string): string {
  // A method of a service that we do not know can pass with --allow-all.
  if (method.startsWith('/')) return method;
  const found = csiMethodPaths.find((path) => path.endsWith(`/${method}`));
  if (found === undefined)
    throw new UsageError(`--${flag}: CSI has no method "${method}"; write it like CreateVolume`);
  return found;
}

/** The right to have one call of a method at the driver. */
export interface CallSlot {
  /** The call ended so; must be said once. */
  release(code: number): void;
}

export interface CallLimiterOptions {
  readonly max: MaxInFlight;
  /** Also look for what the driver takes well, below `max`. */
  readonly adaptive: boolean;
  readonly clock: Clock;
  /** Hears each adaptive limit when it is set and when it changes. */
  readonly onLimit?: (path: string, limit: number) => void;
}

/** Where an adaptive limit begins: as many calls as upstream makes by default. */
const ADAPTIVE_START = 100;
const KNOWN_PATHS = new Set(csiMethodPaths);

/** Counts the calls at the driver by method and says when one more is too many. A belt: how fast
 * work is done the queues decide. */
export class CallLimiter {
  readonly #options: CallLimiterOptions;
  readonly #running = new Map<string, number>();
  readonly #adaptive = new Map<string, AdaptiveLimit>();

  constructor(options: CallLimiterOptions) {
    this.#options = options;
  }

  /** A place for one call of that path, or the limit that is reached and which it is. */
  acquire(
    path: string,
  ): CallSlot | { readonly limit: number; readonly why: 'max-in-flight' | 'adaptive-limit' } {
    const running = this.#running.get(path) ?? 0;
    const max = this.#options.max.byPath.get(path) ?? this.#options.max.every;
    if (running >= max) return { limit: max, why: 'max-in-flight' };
    const adaptive = this.#adaptiveOf(path, max);
    if (adaptive !== undefined && running >= adaptive.limit)
      return { limit: adaptive.limit, why: 'adaptive-limit' };
    this.#running.set(path, running + 1);
    const startedMs = adaptive === undefined ? 0 : this.#options.clock.nowMs();
    return { release: (code) => this.#leave(path, { code, startedMs }) };
  }

  #leave(
    path: string,
    { code, startedMs }: { readonly code: number; readonly startedMs: number },
  ): void {
    const running = this.#running.get(path) ?? 1;
    // A caller chooses paths where all pass: none stays behind.
    if (running === 1) this.#running.delete(path);
    else this.#running.set(path, running - 1);
    const adaptive = this.#adaptive.get(path);
    if (adaptive === undefined) return;
    const before = adaptive.limit;
    adaptive.observe({ startedMs, endedMs: this.#options.clock.nowMs(), code }, running);
    if (adaptive.limit !== before) this.#options.onLimit?.(path, adaptive.limit);
  }

  #adaptiveOf(path: string, max: number): AdaptiveLimit | undefined {
    if (!this.#options.adaptive || !KNOWN_PATHS.has(path)) return undefined;
    let found = this.#adaptive.get(path);
    if (found === undefined) {
      found = new AdaptiveLimit({ start: ADAPTIVE_START, max });
      this.#adaptive.set(path, found);
      this.#options.onLimit?.(path, found.limit);
    }
    return found;
  }
}

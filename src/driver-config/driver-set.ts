import { isDeepStrictEqual } from 'node:util';
import { systemClock, unlessAborted } from '../runtime/clock.ts';
import { Closers } from '../runtime/closers.ts';
import { messageOf } from '../runtime/error-message.ts';
import { flagKey, type Flags, type FlagTable, UsageError } from '../runtime/flags.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { forgetDriver } from '../runtime/metrics.ts';
import type { ProcessContext } from '../runtime/process.ts';
import type { DriverConfig, FlagValues } from './read-config.ts';

/** What the parts of one driver are opened with. Where a process serves one driver, it is the
 * context of the process; where it serves several, each driver has flags, checks and closers of its
 * own, so that it can begin and end while the others go on. */
export interface DriverContext<T extends FlagTable> extends Pick<
  ProcessContext<T>,
  'flags' | 'env' | 'pid' | 'log' | 'metrics' | 'health' | 'closers' | 'stopping'
> {
  /** Tells of new values of the hot flags; absent where the flags can't change. */
  readonly flagChanges?: Pick<Listeners<Flags<T>>, 'subscribe'>;
}

export interface DriverSetOptions<T extends FlagTable> {
  readonly context: ProcessContext<T>;
  /** The flags of this process. */
  readonly table: T;
  /** Begins the work for a driver. What it opens, it adds to the context's closers; where it
   * throws, it is called again later.
   * @throws UsageError for flags that can't be used now */
  readonly start: (context: DriverContext<T>, driver: string) => Promise<void>;
  /** Called when the work for a driver has ended because the file does not name it any more. */
  readonly onRemoved?: (driver: string) => void;
  /** Pause before a driver is started again that could not be started. */
  readonly retryMs?: number;
}

const RETRY_MS = 2_000;

/** The drivers that this process serves: each begins and ends as the file says, without effect on
 * the others. */
export class DriverSet<T extends FlagTable> {
  readonly #options: DriverSetOptions<T>;
  readonly #running = new Map<string, RunningDriver<T>>();
  /** Ends of drivers that were removed or replaced, by name: the next one of that name waits. */
  readonly #ending = new Map<string, Promise<void>>();
  #isClosed = false;

  constructor(options: DriverSetOptions<T>) {
    this.#options = options;
  }

  get names(): readonly string[] {
    return [...this.#running.keys()];
  }

  /** Begins and ends drivers so that those of the config are served. */
  apply(config: DriverConfig): void {
    if (this.#isClosed) return;
    const { log } = this.#options.context;
    for (const [name, running] of this.#running)
      if (!config.has(name)) {
        log.info({ driver: name }, 'the driver was removed: its runs under way end');
        this.#end(name, running, this.#options.onRemoved);
      }
    for (const { name, values } of config.values()) {
      const own = ownValues(this.#options.table, values);
      const running = this.#running.get(name);
      if (running?.didTake(own) === true) continue;
      if (running !== undefined) {
        log.info({ driver: name }, 'the flags of the driver changed: it begins anew with them');
        this.#end(name, running);
      }
      const after = this.#ending.get(name);
      this.#running.set(name, new RunningDriver(this.#options, { name, values: own, after }));
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const [name, running] of this.#running) this.#end(name, running);
    await Promise.all(this.#ending.values());
  }

  #end(name: string, running: RunningDriver<T>, onEnd?: (driver: string) => void): void {
    this.#running.delete(name);
    const ending = running.stop().then(() => {
      if (this.#ending.get(name) === ending) this.#ending.delete(name);
      onEnd?.(name);
    });
    this.#ending.set(name, ending);
  }
}

/** One driver, from `new` to the end of `stop`. */
class RunningDriver<T extends FlagTable> {
  readonly #options: DriverSetOptions<T>;
  readonly #name: string;
  readonly #stopping = new AbortController();
  readonly #changes = new Listeners<Flags<T>>();
  readonly #log: Logger;
  readonly #ended: Promise<void>;
  #values: FlagValues;
  #reported: string | undefined;

  constructor(
    options: DriverSetOptions<T>,
    driver: {
      readonly name: string;
      readonly values: FlagValues;
      /** Resolves when an earlier driver of this name has ended. */
      readonly after: Promise<void> | undefined;
    },
  ) {
    this.#options = options;
    this.#name = driver.name;
    this.#values = driver.values;
    this.#log = options.context.log.child({ driver: driver.name });
    this.#ended = this.#run(driver.after);
  }

  /** Takes new values of the section if only hot flags differ.
   * @returns false if the driver must begin anew */
  didTake(values: FlagValues): boolean {
    const hot = hotKeys(this.#options.table);
    if (!isDeepStrictEqual(without(values, hot), without(this.#values, hot))) return false;
    const hasChanged = !isDeepStrictEqual(values, this.#values);
    this.#values = values;
    if (hasChanged) this.#changes.notify(this.#flags());
    return true;
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#ended;
  }

  async #run(after: Promise<void> | undefined): Promise<void> {
    await after;
    const { signal } = this.#stopping;
    while (!signal.aborted) await this.#runOnce(signal);
  }

  #flags(): Flags<T> {
    return { ...this.#options.context.flags, ...this.#values };
  }

  /** Resolves when the driver has ended, or some time after it could not begin. */
  async #runOnce(signal: AbortSignal): Promise<void> {
    const { health: checks, env, pid, metrics } = this.#options.context;
    const health = checks.addGroup(this.#name);
    const closers = new Closers();
    const readFlags = (): Flags<T> => this.#flags();
    const context: DriverContext<T> = {
      // Hot flags may change before the part that follows them is opened.
      get flags() {
        return readFlags();
      },
      env,
      pid,
      log: this.#log,
      metrics,
      health,
      closers,
      stopping: signal,
      flagChanges: this.#changes,
    };
    health.ready('driver', () => 'not started yet');
    try {
      await this.#options.start(context, this.#name);
      await unlessAborted(new Promise(() => undefined), signal);
    } catch (error) {
      this.#report(error);
      health.ready('driver', () => `it could not be started: ${messageOf(error)}; trying again`);
      await systemClock.sleep(this.#options.retryMs ?? RETRY_MS, signal);
    }
    for (const error of await closers.close())
      this.#log.warn({ err: error, cause: error.cause }, 'closing failed');
    checks.removeGroup(this.#name);
    await forgetDriver(metrics, this.#name);
  }

  #report(error: unknown): void {
    const reason = messageOf(error);
    if (this.#stopping.signal.aborted || reason === this.#reported) return;
    this.#reported = reason;
    if (error instanceof UsageError)
      this.#log.warn({ reason }, 'the driver can not be started; trying again');
    else this.#log.error({ err: error }, 'the driver could not be started; trying again');
  }
}

function ownValues(table: FlagTable, values: FlagValues): FlagValues {
  const own = Object.entries(table).map(([name, spec]) => flagKey(name, spec));
  return Object.fromEntries(own.filter((key) => key in values).map((key) => [key, values[key]]));
}

function hotKeys(table: FlagTable): ReadonlySet<string> {
  const hot = Object.entries(table).filter(([, { isHot }]) => isHot === true);
  return new Set(hot.map(([name, spec]) => flagKey(name, spec)));
}

function without(values: FlagValues, keys: ReadonlySet<string>): FlagValues {
  return Object.fromEntries(Object.entries(values).filter(([key]) => !keys.has(key)));
}

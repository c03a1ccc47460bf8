import { performance } from 'node:perf_hooks';
import { setImmediate } from 'node:timers/promises';
import type { Registry } from 'prom-client';
import { unlessAborted } from '../runtime/abort.ts';
import { systemClock, type Clock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { KubeClient } from './client.ts';
import { isExpired, KubeError, statusError } from './kube-error.ts';
import { listPages } from './list-pages.ts';
import { createReflectorMetrics, type ReflectorMetrics } from './reflector-metrics.ts';
import { Store, versionOf, type StoreOptions, type Transformed } from './store.ts';
import type { WatchEvent } from './watch.ts';

export type { Change, Transformed } from './store.ts';

/** `onChange` is called for the objects of the first list too. */
export interface ReflectorOptions<T extends Transformed> extends StoreOptions<T> {
  readonly client: KubeClient;
  /** All namespaces where absent. */
  readonly namespace?: string;
  readonly fieldSelector?: string;
  readonly labelSelector?: string;
  /** Asks for metadata alone: `transform` gets objects without spec and status. */
  readonly metadataOnly?: boolean;
  readonly metrics?: Registry;
  readonly clock?: Clock;
  /** Objects per page of a list. */
  readonly pageSize?: number;
  /** A watch that receives nothing for this long is closed and opened again. API servers send
   * bookmarks about once a minute. */
  readonly idleTimeoutMs?: number;
  /** Pause after the first failure; doubled with each further one, and half of it random. */
  readonly backoff?: { readonly startMs: number; readonly maxMs: number };
}

/** Lists and watches one collection of the API server until it is stopped, and keeps its objects in
 * a store. */
export interface Reflector<T> {
  /** Whether the first list is complete. */
  readonly hasSynced: boolean;
  /** Resolves when the first list is complete. Rejects with the signal's reason if the signal
   * aborts before, and when the reflector is stopped before. */
  waitForSync(signal?: AbortSignal): Promise<void>;
  /** An object by "namespace/name", or by "name". */
  get(key: string): T | undefined;
  list(): IterableIterator<T>;
  readonly size: number;
  /** Why the store may be outdated, in one line for /readyz; undefined while it is not. */
  readonly trouble: string | undefined;
  /** Whether a watch is open, so that changes arrive at once. `trouble` is less strict: it is not
   * reported for an interruption from which the reflector usually recovers, such as a relist. */
  readonly isFollowing: boolean;
  stop(): Promise<void>;
}

const PAGE_TIMEOUT_MS = 60_000;
const IDLE_TIMEOUT_MS = 120_000;
const BACKOFF = { startMs: 500, maxMs: 30_000 };
/** A watch that received an event or stayed open for this long resets the back-off. */
const GOOD_WATCH_MS = 5_000;

/** Starts at once. Recovers from every failure: expired versions (410), broken connections, refused
 * requests and silent connections. */
export function startReflector<T extends Transformed>(options: ReflectorOptions<T>): Reflector<T> {
  return new ListWatch(options);
}

/** Repeats a cycle: list if there is no version to watch from, then one watch to its end. */
class ListWatch<T extends Transformed> implements Reflector<T> {
  hasSynced = false;
  readonly #options: ReflectorOptions<T>;
  readonly #store: Store<T>;
  readonly #metrics: ReflectorMetrics;
  readonly #clock: Clock;
  /** The collection, for messages. */
  readonly #title: string;
  readonly #stopped = new AbortController();
  #endFirstList: () => void = () => undefined;
  /** Resolves when the first list is complete, or when the reflector is stopped. */
  readonly #firstList = new Promise<void>((resolve) => (this.#endFirstList = resolve));
  readonly #running: Promise<void>;
  #trouble: string | undefined;
  /** The version from which the next watch resumes; undefined: relist. */
  #version: string | undefined;
  /** Whether the API server accepted the watch of this cycle. */
  #isOpen = false;
  /** Whether the watch of this cycle received an event or stayed open long enough. */
  #isGood = false;
  readonly #sizeOf = (): number => this.size;
  /** Cycles in a row that failed or brought nothing. */
  #failures = 0;

  constructor(options: ReflectorOptions<T>) {
    const { resource, namespace } = options;
    this.#options = options;
    this.#store = new Store(options);
    this.#metrics = createReflectorMetrics(resource.plural, options.metrics);
    this.#clock = options.clock ?? systemClock;
    this.#title = namespace === undefined ? resource.plural : `${resource.plural} in ${namespace}`;
    this.#trouble = `${this.#title}: not listed yet`;
    this.#running = this.#run();
  }

  get size(): number {
    return this.#store.size;
  }

  get trouble(): string | undefined {
    return this.#stopped.signal.aborted ? `${this.#title}: stopped` : this.#trouble;
  }

  get isFollowing(): boolean {
    return this.#isOpen && !this.#stopped.signal.aborted;
  }

  get(key: string): T | undefined {
    return this.#store.get(key);
  }

  list(): IterableIterator<T> {
    return this.#store.list();
  }

  async waitForSync(signal: AbortSignal = this.#stopped.signal): Promise<void> {
    if (!this.hasSynced) await unlessAborted(this.#firstList, signal);
    if (this.hasSynced) return;
    signal.throwIfAborted();
    this.#stopped.signal.throwIfAborted();
  }

  async stop(): Promise<void> {
    this.#stopped.abort(new Error(`the reflector of ${this.#title} is stopped`));
    this.#endFirstList();
    this.#metrics.endReport(this.#sizeOf);
    await this.#running;
  }

  async #run(): Promise<void> {
    for (;;) {
      const pauseMs = await this.#cycle();
      if (this.#stopped.signal.aborted) return;
      this.#metrics.countWatchEnd();
      if (pauseMs > 0) await this.#clock.sleep(pauseMs, this.#stopped.signal);
      if (this.#stopped.signal.aborted) return;
    }
  }

  /** @returns the pause before the next cycle */
  async #cycle(): Promise<number> {
    this.#isGood = false;
    try {
      this.#version ??= await this.#relist();
      await this.#watch(this.#version);
      // API servers end watches every few minutes. The next one resumes at once, unless watches end
      // again and again without a result.
      this.#failures = this.#isGood ? 0 : this.#failures + 1;
      return this.#failures > 1 ? this.#backoffMs(this.#failures - 1) : 0;
    } catch (error) {
      if (this.#stopped.signal.aborted) return 0;
      this.#failures = this.#isGood ? 1 : this.#failures + 1;
      const pauseMs = this.#recover(error);
      const { resource, log } = this.#options;
      if (this.#failures === 1 || this.#failures % 10 === 0)
        log[pauseMs === 0 ? 'debug' : 'warn'](
          { resource: resource.plural, failures: this.#failures, error: messageOf(error) },
          'watch interrupted',
        );
      return pauseMs;
    } finally {
      this.#isOpen = false;
    }
  }

  /** Fills the store from a consistent list, page by page.
   * @returns the version to watch from */
  async #relist(): Promise<string> {
    const { client, resource, namespace, fieldSelector, labelSelector, metadataOnly, log } =
      this.#options;
    const { signal } = this.#stopped;
    this.#metrics.countList();
    const listed = new Set<string>();
    let resourceVersion = '';
    const pages = listPages<unknown>(client, resource, {
      namespace,
      fieldSelector,
      labelSelector,
      metadataOnly,
      limit: this.#options.pageSize,
      signal,
      timeoutMs: PAGE_TIMEOUT_MS,
    });
    for await (const page of pages) {
      for (const raw of page.items) this.#store.put(raw, listed);
      // A page of 500 objects takes some milliseconds; other work gets its turn between pages.
      await setImmediate();
      signal.throwIfAborted();
      ({ resourceVersion } = page);
    }
    this.#store.keepOnly(listed);
    this.#metrics.reportObjects(this.#sizeOf);
    if (!this.hasSynced) log.info({ resource: resource.plural, objects: this.size }, 'listed');
    this.hasSynced = true;
    this.#endFirstList();
    return resourceVersion;
  }

  /** Follows one watch to its end. */
  async #watch(resourceVersion: string): Promise<void> {
    const { client, resource, namespace, fieldSelector, labelSelector, metadataOnly } =
      this.#options;
    const idleTimeoutMs = this.#options.idleTimeoutMs ?? IDLE_TIMEOUT_MS;
    let openedMs = Infinity;
    try {
      await client.watch(resource, {
        namespace,
        fieldSelector,
        labelSelector,
        metadataOnly,
        resourceVersion,
        bookmarks: true,
        // Random, so that the watches of many processes don't all end at the same moment.
        timeoutSeconds: Math.round(300 + Math.random() * 300),
        idleTimeoutMs: idleTimeoutMs * (0.9 + Math.random() * 0.2),
        signal: this.#stopped.signal,
        onOpen: () => {
          openedMs = performance.now();
          this.#isOpen = true;
          this.#trouble = undefined;
        },
        onEvent: (event) => this.#apply(event),
      });
    } finally {
      if (performance.now() - openedMs > Math.min(GOOD_WATCH_MS, idleTimeoutMs / 2))
        this.#isGood = true;
    }
  }

  #apply(event: WatchEvent): void {
    if (event.type === 'ERROR') throw statusError(`watch ${this.#title}`, event.object);
    this.#isGood = true;
    this.#version = versionOf(event.object) ?? this.#version;
    if (event.type === 'BOOKMARK') return;
    if (event.type === 'DELETED') this.#store.remove(event.object);
    else this.#store.put(event.object);
  }

  /** Decides how to go on after a failure.
   * @returns the pause before the next cycle */
  #recover(error: unknown): number {
    if (isExpired(error)) {
      this.#version = undefined;
      // A single 410 only means that the watch was interrupted for too long.
      return this.#failures > 1 ? this.#backoffMs(this.#failures - 1) : 0;
    }
    const retryAfterMs = error instanceof KubeError ? (error.retryAfterMs ?? 0) : 0;
    const pauseMs = Math.max(this.#backoffMs(this.#failures), retryAfterMs);
    // Silence is normal on a collection that does not change, so it is not reported as trouble.
    if (this.#isOpen && isSilence(error)) return this.#failures > 1 ? pauseMs : 0;
    this.#trouble = `${this.#title}: ${describe(error)}`;
    return pauseMs;
  }

  /** Half fixed, half random: never zero, and different in each process. */
  #backoffMs(failures: number): number {
    const { startMs, maxMs } = this.#options.backoff ?? BACKOFF;
    const fullMs = Math.min(maxMs, startMs * 2 ** Math.min(failures - 1, 30));
    return fullMs / 2 + (Math.random() * fullMs) / 2;
  }
}

function isSilence(error: unknown): boolean {
  return error instanceof KubeError && error.reason === 'Timeout';
}

/** The error's message, with a hint where the fix is known. */
function describe(error: unknown): string {
  const message = messageOf(error);
  if (!(error instanceof KubeError)) return message;
  if (error.code === 403) return `${message} (grant list and watch)`;
  if (error.code === 404) return `${message} (the API server does not serve this resource)`;
  if (error.code === 401) return `${message} (the credentials are refused)`;
  return message;
}

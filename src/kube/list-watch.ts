import { performance } from 'node:perf_hooks';
import type { Registry } from 'prom-client';
import { backoffMs, type Clock, systemClock, unlessAborted } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { Outage } from '../runtime/outage.ts';
import { type KubeClient, PAGE_SIZE, type Selection } from './client.ts';
import { isExpired, KubeError, statusError } from './kube-error.ts';
import { createReflectorMetrics, type ReflectorMetrics } from './metrics.ts';
import { rawKey, type Resource, versionOf } from './resources.ts';
import type { WatchEvent } from './watch-decoder.ts';

/** What a list and watch fills. */
export interface ObjectSink {
  readonly size: number;
  /** A complete list begins, or begins again. */
  beginList(): void;
  /** An object was listed, added or modified. An event may come twice or out of order. */
  put(raw: unknown, how: 'listed' | 'added' | 'modified'): void;
  remove(raw: unknown): void;
  /** The list is complete. Objects that it did not contain were deleted while no watch was open. */
  endList(): void;
}

export interface ListWatchOptions extends Selection {
  readonly client: KubeClient;
  readonly resource: Resource;
  readonly log: Logger;
  readonly metrics?: Registry;
  readonly clock?: Clock;
  /** A watch that receives nothing for this long is closed and opened again. API servers send
   * bookmarks about once a minute. */
  readonly idleTimeoutMs?: number;
  /** Pause after the first failure. Doubles with each further failure; half of it is random. */
  readonly backoff?: { readonly startMs: number; readonly maxMs: number };
}

const PAGE_TIMEOUT_MS = 60_000;
const IDLE_TIMEOUT_MS = 120_000;
const BACKOFF = { startMs: 500, maxMs: 30_000 };
/** A watch that received an event or stayed open for this long resets the back-off. */
const GOOD_WATCH_MS = 5_000;
/** HTTP statuses of a server that does not know the version of a watch. */
const UNKNOWN_VERSION = [400, 500, 504];
/** After this many such refusals in a row, everything is listed again. */
const MAX_REFUSALS = 3;

/** Lists and watches one collection of the API server until it is stopped, and passes its objects
 * to a sink. Recovers from every failure: expired versions (410), broken connections, refused
 * requests and silent connections. Repeats a cycle: list if there is no version to watch from, then
 * one watch to its end. */
export class ListWatch {
  hasSynced = false;
  readonly #options: ListWatchOptions;
  readonly #sink: ObjectSink;
  readonly #metrics: ReflectorMetrics;
  readonly #clock: Clock;
  /** The collection, for messages. */
  readonly #title: string;
  readonly #stopped = new AbortController();
  /** Ends the cycle under way. */
  #cycle = new AbortController();
  #endFirstList: () => void = () => undefined;
  /** Resolves when the first list is complete, or when this is stopped. */
  readonly #firstList = new Promise<void>((resolve) => (this.#endFirstList = resolve));
  readonly #running: Promise<void>;
  #trouble: string | undefined;
  /** The version from which the next watch resumes; undefined: relist. */
  #version: string | undefined;
  /** Whether the API server accepted the watch of this cycle. */
  #isOpen = false;
  #heardMs: number | undefined;
  /** Whether the watch of this cycle received an event or stayed open long enough. */
  #isGood = false;
  /** Ends the report of the sink's size, which begins with the first list. */
  #endReport: (() => void) | undefined;
  /** Cycles in a row that failed or brought nothing. */
  #failures = 0;
  readonly #outage: Outage;

  /** Starts at once. */
  constructor(options: ListWatchOptions, sink: ObjectSink) {
    const { resource, namespace } = options;
    this.#options = options;
    this.#outage = new Outage(options.log);
    this.#sink = sink;
    this.#metrics = createReflectorMetrics(resource.plural, options.metrics);
    this.#clock = options.clock ?? systemClock;
    this.#title = namespace === undefined ? resource.plural : `${resource.plural} in ${namespace}`;
    this.#trouble = `${this.#title}: not listed yet`;
    this.#running = this.#run();
  }

  /** Why the sink may be outdated, in one line for /readyz; undefined while it is not. */
  get trouble(): string | undefined {
    return this.#stopped.signal.aborted ? `${this.#title}: stopped` : this.#trouble;
  }

  /** Whether a watch is open, so that changes arrive at once. `trouble` is less strict: it is not
   * reported for an interruption from which the watch usually recovers, such as a relist. */
  get isFollowing(): boolean {
    return this.#isOpen && !this.#stopped.signal.aborted;
  }

  /** When the open watch last received something, by performance.now(); before that, when its list
   * began. undefined while no watch is open, and after a reopening until something arrives. */
  get heardMs(): number | undefined {
    return this.isFollowing ? this.#heardMs : undefined;
  }

  get size(): number {
    return this.#sink.size;
  }

  /** Resolves when the first list is complete. Rejects with the signal's reason if the signal
   * aborts first, and if this is stopped first. */
  async waitForSync(signal: AbortSignal = this.#stopped.signal): Promise<void> {
    if (!this.hasSynced) await unlessAborted(this.#firstList, signal);
    if (this.hasSynced) return;
    signal.throwIfAborted();
    this.#stopped.signal.throwIfAborted();
  }

  /** Lists everything again, even if a list is under way. */
  relist(): void {
    this.#version = undefined;
    this.#cycle.abort(new Relist());
  }

  async stop(): Promise<void> {
    this.#stopped.abort(new Error(`the watch of ${this.#title} is stopped`));
    this.#cycle.abort(this.#stopped.signal.reason);
    this.#outage.forget();
    this.#endFirstList();
    this.#endReport?.();
    await this.#running;
  }

  async #run(): Promise<void> {
    // relist() in the same turn as the constructor needs no second list.
    await Promise.resolve();
    while (!this.#stopped.signal.aborted) {
      const pauseMs = await this.#runCycle();
      if (this.#stopped.signal.aborted) return;
      this.#metrics.countWatchEnd();
      if (pauseMs > 0) await this.#clock.sleep(pauseMs, this.#stopped.signal);
    }
  }

  /** The selection of every request. */
  get #selection(): Selection {
    const { namespace, fieldSelector, labelSelector, metadataOnly } = this.#options;
    return { namespace, fieldSelector, labelSelector, metadataOnly };
  }

  /** @returns the pause before the next cycle */
  async #runCycle(): Promise<number> {
    this.#isGood = false;
    this.#cycle = new AbortController();
    try {
      await this.#listAndWatch();
      // API servers end watches every few minutes. The next one resumes at once, unless watches end
      // again and again without a result.
      this.#failures = this.#isGood ? 0 : this.#failures + 1;
      return this.#failures > 1 ? this.#backoffMs(this.#failures - 1) : 0;
    } catch (error) {
      if (this.#stopped.signal.aborted) return 0;
      if (!(this.#cycle.signal.reason instanceof Relist)) return this.#fail(error);
      this.#version = undefined;
      return 0;
    } finally {
      this.#isOpen = false;
    }
  }

  async #listAndWatch(): Promise<void> {
    if (this.#version !== undefined) await this.#checkVersion(this.#version);
    this.#heardMs = this.#version === undefined ? performance.now() : undefined;
    this.#version ??= await this.#relist();
    await this.#watch(this.#version);
  }

  /** Forgets the version if the API server is at an older one, for example after a restore. A watch
   * from that version would be silent until the server reaches it again, and the changes until then
   * would be lost. So every watch that resumes starts with this check. */
  async #checkVersion(version: string): Promise<void> {
    const { client, resource, log } = this.#options;
    const { signal } = this.#cycle;
    const one = { limit: 1, metadataOnly: true, signal, timeoutMs: PAGE_TIMEOUT_MS };
    const { resourceVersion } = await client.list(resource, { ...this.#selection, ...one });
    signal.throwIfAborted();
    if (!isOlder(resourceVersion, version)) return;
    log.warn(
      { resource: resource.plural },
      'the API server is at an older version than before; listing everything again',
    );
    this.#version = undefined;
  }

  /** Fills the sink from a consistent list, page by page.
   * @returns the version to watch from */
  async #relist(): Promise<string> {
    const { resource, log } = this.#options;
    this.#metrics.countList();
    this.#sink.beginList();
    let page = await this.#listPage();
    let { objects } = page;
    while (page.continueToken !== undefined) {
      page = await this.#listPage(page.continueToken);
      objects += page.objects;
    }
    this.#sink.endList();
    this.#endReport ??= this.#metrics.reportObjects(() => this.#sink.size);
    if (!this.hasSynced) log.info({ resource: resource.plural, objects }, 'listed');
    this.hasSynced = true;
    this.#endFirstList();
    return page.resourceVersion;
  }

  /** Returns only the page's version and token. Objects that live until the next page has come move
   * to the old generation, which raises the peak of memory. */
  async #listPage(continueToken?: string) {
    const { client, resource } = this.#options;
    const { signal } = this.#cycle;
    const page = { limit: PAGE_SIZE, continueToken, signal, timeoutMs: PAGE_TIMEOUT_MS };
    const { items, ...rest } = await client.list<unknown>(resource, {
      ...this.#selection,
      ...page,
    });
    signal.throwIfAborted();
    for (const item of items) this.#pass(item, () => this.#sink.put(item, 'listed'));
    return { ...rest, objects: items.length };
  }

  /** Follows one watch from a version to its end. */
  async #watch(resourceVersion: string): Promise<void> {
    const { client, resource, idleTimeoutMs = IDLE_TIMEOUT_MS } = this.#options;
    let openedMs = Infinity;
    try {
      await client.watch(resource, {
        ...this.#selection,
        resourceVersion,
        // Random, so that the watches of many processes don't all end at the same moment.
        timeoutSeconds: Math.round(300 + Math.random() * 300),
        idleTimeoutMs: idleTimeoutMs * (0.9 + Math.random() * 0.2),
        signal: this.#cycle.signal,
        onOpen: () => {
          openedMs = performance.now();
          this.#isOpen = true;
          this.#trouble = undefined;
          this.#outage.ended({ resource: resource.plural }, 'the watch is open again');
        },
        onEvent: (event) => this.#apply(event),
      });
    } finally {
      const isLong = performance.now() - openedMs > Math.min(GOOD_WATCH_MS, idleTimeoutMs / 2);
      if (isLong) this.#isGood = true;
    }
  }

  #apply({ type, object }: WatchEvent): void {
    if (type === 'ERROR') throw statusError(`watch ${this.#title}`, object);
    this.#isGood = true;
    this.#heardMs = performance.now();
    this.#version = versionOf(object) ?? this.#version;
    if (type === 'BOOKMARK') return;
    this.#pass(object, () => {
      if (type === 'DELETED') this.#sink.remove(object);
      else this.#sink.put(object, type === 'ADDED' ? 'added' : 'modified');
    });
  }

  /** Passes an object on. Goes on if the sink throws: a new watch would bring the object again. */
  #pass(object: unknown, call: () => void): void {
    try {
      call();
    } catch (err) {
      const { resource, log } = this.#options;
      const fields = { resource: resource.plural, object: rawKey(object), err };
      log.error(fields, 'object skipped: its handler failed');
    }
  }

  /** @returns the pause before the next cycle */
  #fail(error: unknown): number {
    this.#failures = this.#isGood ? 1 : this.#failures + 1;
    const pauseMs = this.#recover(error);
    const fields = { resource: this.#options.resource.plural, error: messageOf(error) };
    if (pauseMs === 0) this.#options.log.debug(fields, 'watch interrupted');
    else this.#outage.met(fields.error, fields, 'watch interrupted');
    return pauseMs;
  }

  /** Decides how to go on after a failure.
   * @returns the pause before the next cycle */
  #recover(error: unknown): number {
    if (isExpired(error)) {
      this.#version = undefined;
      // A single 410 only means that the watch was interrupted for too long.
      return this.#failures > 1 ? this.#backoffMs(this.#failures - 1) : 0;
    }
    const isRefused = error instanceof KubeError && UNKNOWN_VERSION.includes(error.code);
    if (isRefused && !this.#isOpen && this.#failures % MAX_REFUSALS === 0)
      this.#version = undefined;
    const retryAfterMs = error instanceof KubeError ? (error.retryAfterMs ?? 0) : 0;
    const pauseMs = Math.max(this.#backoffMs(this.#failures), retryAfterMs);
    // Silence is normal on a collection that does not change, so it is not reported as trouble.
    if (this.isFollowing && isSilence(error)) return this.#failures > 1 ? pauseMs : 0;
    this.#trouble = `${this.#title}: ${describe(error)}`;
    return pauseMs;
  }

  /** Half fixed, half random: never zero, and different in each process. */
  #backoffMs(failures: number): number {
    const fullMs = backoffMs(this.#options.backoff ?? BACKOFF, failures);
    return fullMs / 2 + (Math.random() * fullMs) / 2;
  }
}

/** Ends a cycle, so that the next one lists. */
class Relist extends Error {}

function isSilence(error: unknown): boolean {
  return error instanceof KubeError && error.reason === 'Timeout';
}

/** The error's message, with a hint where the fix is known. */
function describe(error: unknown): string {
  const message = messageOf(error);
  if (!(error instanceof KubeError)) return message;
  if (error.code === 403) return `${message} (grant list and watch)`;
  if (error.code === 404) return `${message} (the API server does not serve this resource)`;
  if (error.code === 401) return `${message} (renew the credentials)`;
  return message;
}

/** False if one of them is not a number, as may be with servers other than Kubernetes' own. */
function isOlder(version: string, than: string): boolean {
  const isNumber = (text: string): boolean => /^\d+$/.test(text);
  return isNumber(version) && isNumber(than) && BigInt(version) < BigInt(than);
}

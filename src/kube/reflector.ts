import { performance } from 'node:perf_hooks';
import { setImmediate } from 'node:timers/promises';
import type { Registry } from 'prom-client';
import { systemClock, type Clock } from '../runtime/clock.ts';
import type { KubeClient, ListPage } from './client.ts';
import { isExpired, KubeError, statusError } from './kube-error.ts';
import { Store, versionOf, messageOf, type StoreOptions, type Transformed } from './store.ts';
import { createReflectorMetrics } from './reflector-metrics.ts';
import type { WatchEvent } from './watch.ts';

export type { Change, Transformed } from './store.ts';

/** `onChange` is called for the objects of the first list too. */
export interface ReflectorOptions<T extends Transformed> extends StoreOptions<T> {
  readonly client: KubeClient;
  /** Absent: all. */
  readonly namespace?: string;
  readonly fieldSelector?: string;
  readonly labelSelector?: string;
  readonly metrics?: Registry;
  readonly clock?: Clock;
  /** Objects per page of a list. */
  readonly pageSize?: number;
  /** Silence after which a watch is given up and opened anew; bookmarks come about once a minute.
   */
  readonly idleTimeoutMs?: number;
  /** Pause after the first failure, doubled with each; half of it is chance. */
  readonly backoff?: { readonly startMs: number; readonly maxMs: number };
}

/** A local copy of a collection that follows the API server for ever. */
export interface Reflector<T> {
  /** The first list is complete. */
  readonly hasSynced: boolean;
  /** Resolves with the first complete list; rejects if the signal aborts or the reflector is
   * stopped before. */
  synced(signal?: AbortSignal): Promise<void>;
  /** By "namespace/name", or "name". */
  get(key: string): T | undefined;
  list(): IterableIterator<T>;
  readonly size: number;
  /** One line for /readyz while the copy can't be trusted to be fresh; undefined: all is well. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

const PAGE_SIZE = 500;
const PAGE_TIMEOUT_MS = 60_000;
const IDLE_TIMEOUT_MS = 120_000;
const BACKOFF = { startMs: 500, maxMs: 30_000 };
/** A watch that lasted this long, or brought an event, was a good one. */
const GOOD_WATCH_MS = 5_000;

/** Starts at once: lists in pages, watches from there, and comes back from everything (410, dropped
 * connections, refusals, silence). */
export function startReflector<T extends Transformed>(options: ReflectorOptions<T>): Reflector<T> {
  const { resource, log } = options;
  const clock = options.clock ?? systemClock;
  const { startMs, maxMs } = options.backoff ?? BACKOFF;
  const stopped = new AbortController();
  const store = new Store(options);
  const metrics = createReflectorMetrics(options.metrics, resource.plural);
  const what =
    options.namespace === undefined
      ? resource.plural
      : `${resource.plural} in ${options.namespace}`;
  let trouble: string | undefined = `${what}: not listed yet`;
  let hasSynced = false;
  let settleSynced: (() => void) | undefined;
  const firstList = new Promise<void>((resolve) => {
    settleSynced = resolve;
  });

  /** Fills the store from a consistent list. @returns the version to watch from */
  const relist = async (): Promise<string> => {
    metrics.listed();
    const seen = new Set<string>();
    let page: ListPage<unknown> | undefined;
    do {
      page = await options.client.list<unknown>(resource, {
        ...selection(options),
        limit: options.pageSize ?? PAGE_SIZE,
        signal: stopped.signal,
        timeoutMs: PAGE_TIMEOUT_MS,
        ...(page?.continueToken === undefined ? {} : { continueToken: page.continueToken }),
      });
      for (const raw of page.items) store.put(raw, seen);
      // A page of 500 takes some milliseconds; others must get their turn in between.
      await setImmediate();
      stopped.signal.throwIfAborted();
    } while (page.continueToken !== undefined);
    store.keepOnly(seen);
    metrics.objects(store.size);
    return page.resourceVersion;
  };

  /** Follows one watch to its end; leaves in `position` how far it came and whether it was a good
   * one. */
  const follow = async (position: Position): Promise<void> => {
    let openedMs = Infinity;
    const onEvent = (event: WatchEvent): void => {
      if (event.type === 'ERROR') throw statusError(`watch ${what}`, event.object);
      position.isGood = true;
      position.version = versionOf(event.object) ?? position.version;
      if (event.type === 'BOOKMARK') return;
      if (event.type === 'DELETED') store.remove(event.object);
      else store.put(event.object);
      metrics.objects(store.size);
    };
    const idleTimeoutMs = options.idleTimeoutMs ?? IDLE_TIMEOUT_MS;
    try {
      await options.client.watch(resource, {
        ...selection(options),
        resourceVersion: position.version ?? '',
        bookmarks: true,
        // Spread, so that the watches of many processes don't all end in the same moment.
        timeoutSeconds: Math.round(300 + Math.random() * 300),
        idleTimeoutMs: idleTimeoutMs * (0.9 + Math.random() * 0.2),
        signal: stopped.signal,
        onOpen: () => {
          openedMs = performance.now();
          position.isOpen = true;
          trouble = undefined;
        },
        onEvent,
      });
    } finally {
      if (performance.now() - openedMs > Math.min(GOOD_WATCH_MS, idleTimeoutMs / 2))
        position.isGood = true;
    }
  };

  const run = async (): Promise<void> => {
    const position: Position = { version: undefined, isOpen: false, isGood: false };
    for (let failures = 0; !stopped.signal.aborted;) {
      let pauseMs = 0;
      position.isOpen = false;
      position.isGood = false;
      try {
        if (position.version === undefined) {
          position.version = await relist();
          if (!hasSynced) log.info({ resource: resource.plural, objects: store.size }, 'listed');
          hasSynced = true;
          settleSynced?.();
        }
        await follow(position);
        // A clean end is what servers do every few minutes: go on from the version reached, at
        // once.
        failures = position.isGood ? 0 : failures + 1;
        if (failures > 1) pauseMs = backoffMs(failures - 1, startMs, maxMs);
      } catch (error) {
        if (stopped.signal.aborted) break;
        failures = position.isGood ? 1 : failures + 1;
        if (isExpired(error)) {
          position.version = undefined;
          // The first 410 means we were away for too long; only its return means trouble.
          pauseMs = failures > 1 ? backoffMs(failures - 1, startMs, maxMs) : 0;
        } else {
          pauseMs = Math.max(
            backoffMs(failures, startMs, maxMs),
            error instanceof KubeError ? (error.retryAfterMs ?? 0) : 0,
          );
          // On a quiet resource silence is normal: look again at once, and quietly.
          if (position.isOpen && isSilence(error)) pauseMs = failures > 1 ? pauseMs : 0;
          else trouble = `${what}: ${advice(error)}`;
        }
        if (failures === 1 || failures % 10 === 0)
          log[pauseMs === 0 ? 'debug' : 'warn'](
            { resource: resource.plural, failures, error: messageOf(error) },
            'watch interrupted',
          );
      }
      metrics.reconnected();
      if (pauseMs > 0) await clock.sleep(pauseMs, stopped.signal);
    }
  };
  const running = run();

  return {
    get hasSynced() {
      return hasSynced;
    },
    get size() {
      return store.size;
    },
    get trouble() {
      return stopped.signal.aborted ? `${what}: stopped` : trouble;
    },
    get: (key) => store.get(key),
    list: () => store.list(),
    async synced(signal) {
      if (hasSynced) return;
      await either(firstList, signal, stopped.signal);
    },
    async stop() {
      stopped.abort(new Error(`the reflector of ${what} is stopped`));
      await running;
    },
  };
}

interface Position {
  /** Where the next watch starts; undefined: list first. */
  version: string | undefined;
  /** The server accepted the watch. */
  isOpen: boolean;
  /** It brought something, or lasted. */
  isGood: boolean;
}

function selection(o: {
  readonly namespace?: string;
  readonly fieldSelector?: string;
  readonly labelSelector?: string;
}): {
  namespace?: string;
  fieldSelector?: string;
  labelSelector?: string;
} {
  return {
    ...(o.namespace === undefined ? {} : { namespace: o.namespace }),
    ...(o.fieldSelector === undefined ? {} : { fieldSelector: o.fieldSelector }),
    ...(o.labelSelector === undefined ? {} : { labelSelector: o.labelSelector }),
  };
}

/** Half fixed, half chance: never zero, never in step. */
function backoffMs(failures: number, startMs: number, maxMs: number): number {
  const full = Math.min(maxMs, startMs * 2 ** Math.min(failures - 1, 30));
  return full / 2 + (Math.random() * full) / 2;
}

function isSilence(error: unknown): boolean {
  return error instanceof KubeError && error.reason === 'Timeout';
}

function advice(error: unknown): string {
  const words = messageOf(error);
  if (!(error instanceof KubeError)) return words;
  if (error.code === 403) return `${words} (grant list and watch)`;
  if (error.code === 404) return `${words} (the API server does not serve this resource)`;
  if (error.code === 401) return `${words} (the credentials are refused)`;
  return words;
}

/** The promise, unless one of the signals aborts first. */
async function either(
  promise: Promise<void>,
  ...signals: (AbortSignal | undefined)[]
): Promise<void> {
  const present = signals.filter((signal) => signal !== undefined);
  const settled = new AbortController();
  const aborted = new Promise<never>((_resolve, reject) => {
    for (const signal of present) {
      if (signal.aborted) reject(signal.reason);
      else
        signal.addEventListener('abort', () => reject(signal.reason), { signal: settled.signal });
    }
  });
  try {
    await Promise.race([promise, aborted]);
  } finally {
    settled.abort();
  }
}

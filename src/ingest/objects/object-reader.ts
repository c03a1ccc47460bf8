import type { KubeClient } from '../../kube/client.ts';
import { selectName, type Resource } from '../../kube/resources.ts';
import { systemClock, type Clock } from '../../runtime/clock.ts';
import { messageOf } from '../../runtime/error-message.ts';
import type { Logger } from '../../runtime/log.ts';

export interface ObjectReaderOptions {
  readonly client: Pick<KubeClient, 'list'>;
  readonly resource: Resource;
  /** Receives an object as the API server sent it; undefined: it does not exist. */
  readonly onRead: (key: string, raw: unknown) => void;
  readonly log: Logger;
  readonly clock?: Clock;
}

const MAX_AT_ONCE = 4;
const RETRY_MS = 1_000;

/** Reads single objects in the background, each until it succeeds: by a list of one name, for which
 * a watcher has the permission already. */
export class ObjectReader {
  readonly #options: ObjectReaderOptions;
  readonly #stopped = new AbortController();
  /** By "namespace/name". */
  readonly #wanted = new Set<string>();
  readonly #reading = new Map<string, Promise<void>>();

  constructor(options: ObjectReaderOptions) {
    this.#options = options;
  }

  /** Reads an object; again if it is being read now. */
  want(key: string): void {
    this.#wanted.add(key);
    this.#begin();
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    this.#wanted.clear();
    await Promise.all(this.#reading.values());
  }

  #begin(): void {
    for (const key of this.#wanted) {
      if (this.#reading.size >= MAX_AT_ONCE || this.#stopped.signal.aborted) return;
      if (this.#reading.has(key)) continue;
      this.#wanted.delete(key);
      this.#reading.set(key, this.#read(key));
    }
  }

  async #read(key: string): Promise<void> {
    const { client, resource, onRead, log, clock = systemClock } = this.#options;
    const { signal } = this.#stopped;
    const [name = '', namespace] = key.split('/').toReversed();
    const fieldSelector = selectName(name);
    let isRead = false;
    try {
      const { items } = await client.list<unknown>(resource, { namespace, fieldSelector, signal });
      isRead = true;
      if (!signal.aborted) onRead(key, items[0]);
    } catch (error) {
      const { plural } = resource;
      log.debug({ resource: plural, object: key, error: messageOf(error) }, 'reading failed');
    }
    if (!isRead) await clock.sleep(RETRY_MS, signal);
    this.#reading.delete(key);
    if (!isRead && !signal.aborted) this.#wanted.add(key);
    this.#begin();
  }
}

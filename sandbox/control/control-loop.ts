import type { Logger } from '#src/runtime/log.ts';
import { ApiError } from '../api/api-error.ts';
import type { Operations } from '../api/operations.ts';
import type { Resource } from '../api/resource.ts';
import type { Change } from '../api/store.ts';

/** Keys per turn of the event loop, so that the server can answer requests in between. */
const BATCH = 64;

/** The loop of a controller: it collects the keys of all changes, and handles each changed key
 * once, in the order of the first change. */
export class ControlLoop {
  readonly #operations: Operations;
  readonly #log: Logger;
  /** What to do, by key, in the order of the first change. */
  readonly #dirty = new Map<string, () => void>();
  readonly #unsubscribe: (() => void)[] = [];
  readonly #waiters: (() => void)[] = [];
  #scheduled: NodeJS.Immediate | undefined;
  #isClosed = false;

  constructor(operations: Operations, log: Logger) {
    this.#operations = operations;
    this.#log = log;
  }

  /** Calls the listener for every change of the resource's objects, until `close`. */
  listen(resource: Resource, listener: (change: Change) => void): void {
    const { listeners } = this.#operations.store.collection(resource);
    listeners.add(listener);
    this.#unsubscribe.push(() => listeners.delete(listener));
  }

  /** Calls `work` soon. It replaces work that already waits for the same key. */
  enqueue(key: string, work: () => void): void {
    if (this.#isClosed) return;
    this.#dirty.set(key, work);
    this.#scheduled ??= setImmediate(() => this.#run());
  }

  /** Resolves when every change so far has been handled. */
  async idle(): Promise<void> {
    if (this.#dirty.size === 0) return;
    await new Promise<void>((resolve) => this.#waiters.push(resolve));
  }

  close(): void {
    this.#isClosed = true;
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
    this.#dirty.clear();
    clearImmediate(this.#scheduled);
    this.#resolveWaiters();
  }

  #run(): void {
    this.#scheduled = undefined;
    let left = BATCH;
    for (const [key, work] of this.#dirty) {
      if (left === 0) break;
      left -= 1;
      this.#dirty.delete(key);
      try {
        work();
      } catch (error) {
        // No retry now, because the API would refuse again; the next change syncs the object again.
        const why = error instanceof ApiError ? error.message : error;
        this.#log.warn({ key, err: why }, 'a controller of the sandbox could not write');
      }
    }
    if (this.#dirty.size > 0) this.#scheduled ??= setImmediate(() => this.#run());
    else this.#resolveWaiters();
  }

  #resolveWaiters(): void {
    for (const resolve of this.#waiters.splice(0)) resolve();
  }
}

import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { ListWatch, type ListWatchOptions, type ObjectSink } from './list-watch.ts';
import type { ObjectMeta } from './objects.ts';
import { keyOf, metadataOf, rawKey, type Resource } from './resources.ts';

/** The metadata that a transform must keep. */
export interface Transformed {
  readonly metadata: Pick<ObjectMeta, 'name' | 'namespace' | 'uid' | 'resourceVersion'>;
}

export interface Change<T> {
  /** An object that replaced another one of the same name is reported as deleted, then added. */
  readonly type: 'added' | 'modified' | 'deleted';
  /** For deleted: the last known state. */
  readonly object: T;
  readonly previous?: T;
}

export interface StoreOptions<T> {
  readonly resource: Resource;
  /** Cuts an object down to the fields that are needed: 10,000 claims take 7 MB instead of 30 MB.
   * An object for which it throws is logged and skipped. */
  readonly transform: (raw: unknown) => T;
  /** Errors that it throws are logged and otherwise ignored. */
  readonly onChange?: (change: Change<T>) => void;
  readonly log: Logger;
}

/** The transformed objects of one collection, by key, and the changes to them. */
class Store<T extends Transformed> implements ObjectSink {
  readonly #objects = new Map<string, T>();
  readonly #options: StoreOptions<T>;
  readonly #log: Logger;
  /** Keys of the list under way. */
  #listed: Set<string> | undefined;

  constructor(options: StoreOptions<T>) {
    this.#options = options;
    this.#log = options.log.child({ resource: options.resource.plural });
  }

  get size(): number {
    return this.#objects.size;
  }

  get(key: string): T | undefined {
    return this.#objects.get(key);
  }

  list(): IterableIterator<T> {
    return this.#objects.values();
  }

  beginList(): void {
    this.#listed = new Set();
  }

  put(raw: unknown): void {
    const key = rawKey(raw);
    if (key === undefined) return;
    this.#listed?.add(key);
    const previous = this.#objects.get(key);
    const { uid, resourceVersion } = metadataOf(raw) ?? {};
    // A relist mostly contains objects that have not changed.
    const known = previous?.metadata;
    if (known && known.resourceVersion === resourceVersion && known.uid === uid) return;
    const object = this.#transform(raw);
    if (object === undefined) return;
    this.#objects.set(key, object);
    if (previous?.metadata.uid === object.metadata.uid)
      return this.#report({ type: 'modified', object, previous });
    if (previous) this.#report({ type: 'deleted', object: previous, previous });
    this.#report({ type: 'added', object });
  }

  remove(raw: unknown): void {
    const key = rawKey(raw);
    if (key !== undefined) this.#listed?.delete(key);
    const previous = key === undefined ? undefined : this.#objects.get(key);
    if (key === undefined || previous === undefined) return;
    this.#objects.delete(key);
    this.#report({ type: 'deleted', object: this.#transform(raw) ?? previous, previous });
  }

  endList(): void {
    for (const [key, previous] of this.#objects) {
      if (this.#listed?.has(key) === true) continue;
      this.#objects.delete(key);
      this.#report({ type: 'deleted', object: previous, previous });
    }
    this.#listed = undefined;
  }

  #transform(raw: unknown): T | undefined {
    return transformOrSkip(raw, this.#options.transform, this.#log);
  }

  #report(change: Change<T>): void {
    passOn(change, this.#options.onChange, this.#log);
  }
}

/** Cuts an object down to what is needed.
 * @returns undefined if it has no name, or if `transform` throws, which is logged */
export function transformOrSkip<T>(
  raw: unknown,
  transform: (raw: unknown) => T,
  log: Logger,
): T | undefined {
  const object = rawKey(raw);
  if (object === undefined) return undefined;
  try {
    return transform(raw);
  } catch (error) {
    log.error({ object, error: messageOf(error) }, 'object skipped: not readable');
    return undefined;
  }
}

/** Passes a change to its handler, whose errors are logged and otherwise ignored. */
export function passOn<C extends Change<Transformed>>(
  change: C,
  onChange: ((change: C) => void) | undefined,
  log: Logger,
): void {
  try {
    onChange?.(change);
  } catch (err) {
    const object = keyOf(change.object.metadata);
    log.error({ object, change: change.type, err }, 'handler of a change failed');
  }
}

/** `onChange` is called for the objects of the first list too. */
export interface ReflectorOptions<T extends Transformed>
  extends StoreOptions<T>, Omit<ListWatchOptions, 'resource' | 'log'> {}

/** Lists and watches one collection of the API server until it is stopped, and keeps its objects in
 * a store. */
export interface Reflector<T> extends Pick<
  ListWatch,
  'hasSynced' | 'waitForSync' | 'trouble' | 'isFollowing' | 'size' | 'stop'
> {
  /** An object by "namespace/name", or by "name". */
  get(key: string): T | undefined;
  list(): IterableIterator<T>;
}

/** Starts at once. */
export function startReflector<T extends Transformed>(options: ReflectorOptions<T>): Reflector<T> {
  const store = new Store(options);
  return Object.assign(new ListWatch(options, store), {
    get: (key: string) => store.get(key),
    list: () => store.list(),
  });
}

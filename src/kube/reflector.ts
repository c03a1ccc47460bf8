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
  /** Absent for an object that was not kept before. */
  readonly previous?: T;
}

export interface StoreOptions<T> {
  readonly resource: Resource;
  /** Keeps only the fields that are needed: 10,000 claims take 7 MB instead of 30 MB. If it throws,
   * the object is logged and skipped. */
  readonly transform: (raw: unknown) => T;
  /** Whether to keep an object that was added or modified. If absent, all are kept. */
  readonly isKept?: (object: T) => boolean;
  /** Errors that it throws are logged and otherwise ignored. */
  readonly onChange?: (change: Change<T>) => void;
  readonly log: Logger;
}

/** The transformed objects of one collection, by key, and the changes to them. */
export class Store<T extends Transformed> implements ObjectSink {
  readonly #objects = new Map<string, T>();
  readonly #options: StoreOptions<T>;
  readonly #log: Logger;
  /** Keys of kept objects that the list under way has not contained yet. */
  #unlisted = new Set<string>();

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
    this.#unlisted = new Set(this.#objects.keys());
  }

  /** @returns the object, transformed; undefined if it can't be read */
  put(raw: unknown, how: 'listed' | 'added' | 'modified'): T | undefined {
    const key = rawKey(raw);
    if (key === undefined) return undefined;
    this.#unlisted.delete(key);
    const known = this.#objects.get(key);
    const { uid, resourceVersion } = metadataOf(raw) ?? {};
    // A relist mostly contains objects that have not changed.
    const isSame =
      known?.metadata.uid === uid && known?.metadata.resourceVersion === resourceVersion;
    if (known !== undefined && isSame) return known;
    const object = this.#transform(raw, key);
    if (object !== undefined) this.#keep(key, object, how === 'modified' ? how : 'added');
    return object;
  }

  remove(raw: unknown): void {
    this.#drop(rawKey(raw) ?? '');
  }

  endList(): void {
    for (const key of this.#unlisted) this.#drop(key);
    this.#unlisted.clear();
  }

  /** @param ifUnknown  the type of the change if the object was not kept before */
  #keep(key: string, object: T, ifUnknown: 'added' | 'modified'): void {
    const known = this.#objects.get(key);
    if (this.#options.isKept?.(object) ?? true) this.#objects.set(key, object);
    else this.#objects.delete(key);
    if (known === undefined) return this.#report({ type: ifUnknown, object });
    if (known.metadata.uid === object.metadata.uid)
      return this.#report({ type: 'modified', object, previous: known });
    this.#report({ type: 'deleted', object: known, previous: known });
    this.#report({ type: 'added', object });
  }

  #drop(key: string): void {
    const object = this.#objects.get(key);
    if (object === undefined) return;
    this.#objects.delete(key);
    this.#report({ type: 'deleted', object, previous: object });
  }

  #transform(raw: unknown, object: string): T | undefined {
    try {
      return this.#options.transform(raw);
    } catch (error) {
      this.#log.error({ object, error: messageOf(error) }, 'object skipped: it is not readable');
      return undefined;
    }
  }

  #report(change: Change<T>): void {
    try {
      this.#options.onChange?.(change);
    } catch (err) {
      const object = keyOf(change.object.metadata);
      this.#log.error({ object, change: change.type, err }, 'the handler of a change failed');
    }
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

import type { ObjectSink } from '../../kube/list-watch.ts';
import { type Change, passOn, type Transformed, transformOrSkip } from '../../kube/reflector.ts';
import { keyOf, rawKey, type Resource } from '../../kube/resources.ts';
import type { Logger } from '../../runtime/log.ts';

/** An object was added or modified.
 *
 * `previous`: its earlier state, if that was kept. `isModified`: it was modified, although its
 * earlier state is not known. */
export interface PendingChange<T> extends Change<T> {
  readonly type: 'added' | 'modified';
  readonly isModified: boolean;
}

export interface PendingCacheOptions<T> {
  readonly resource: Resource;
  /** Cuts an object down to what is needed. One for which it throws is logged and skipped. */
  readonly transform: (raw: unknown) => T;
  /** Whether an object may need a job as it is, or because another object changes. */
  readonly mayNeedJob: (object: T) => boolean;
  readonly onChange: (change: PendingChange<T>) => void;
  readonly log: Logger;
}

/** The objects of a collection that may need a job. The others, nearly all, need none until they
 * change, so nothing is kept of them. */
export class PendingCache<T extends Transformed> implements ObjectSink {
  readonly #options: PendingCacheOptions<T>;
  readonly #log: Logger;
  readonly #kept = new Map<string, T>();
  /** Keys of kept objects that the list under way did not contain so far. */
  #unlisted = new Set<string>();

  constructor(options: PendingCacheOptions<T>) {
    this.#options = options;
    this.#log = options.log.child({ resource: options.resource.plural });
  }

  get size(): number {
    return this.#kept.size;
  }

  get(key: string): T | undefined {
    return this.#kept.get(key);
  }

  list(): IterableIterator<T> {
    return this.#kept.values();
  }

  beginList(): void {
    this.#unlisted = new Set(this.#kept.keys());
  }

  /** @returns the object, cut down; undefined if it can't be read */
  put(raw: unknown, how: 'listed' | 'added' | 'modified'): T | undefined {
    const { transform, mayNeedJob, onChange } = this.#options;
    const object = transformOrSkip(raw, transform, this.#log);
    if (object === undefined) return undefined;
    const key = keyOf(object.metadata);
    const { uid, resourceVersion } = object.metadata;
    this.#unlisted.delete(key);
    const known = this.#kept.get(key);
    const previous = known?.metadata.uid === uid ? known : undefined;
    if (previous?.metadata.resourceVersion === resourceVersion) return object;
    if (mayNeedJob(object)) this.#kept.set(key, object);
    else this.#kept.delete(key);
    const change: PendingChange<T> =
      previous === undefined
        ? { type: 'added', object, isModified: how === 'modified' && known === undefined }
        : { type: 'modified', object, previous, isModified: true };
    passOn(change, onChange, this.#log);
    return object;
  }

  remove(raw: unknown): void {
    const key = rawKey(raw);
    if (key !== undefined) this.#kept.delete(key);
  }

  endList(): void {
    for (const key of this.#unlisted) this.#kept.delete(key);
    this.#unlisted.clear();
  }
}

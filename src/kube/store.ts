import type { Logger } from '../runtime/log.ts';
import type { ObjectMeta } from './objects.ts';
import { keyOf, type Resource } from './resources.ts';

/** What a projection must keep. */
export interface Transformed {
  readonly metadata: Pick<ObjectMeta, 'name' | 'namespace' | 'uid' | 'resourceVersion'>;
}

export interface Change<T> {
  /** An object that was replaced by a namesake is reported as deleted, then added. */
  readonly type: 'added' | 'modified' | 'deleted';
  /** For deleted: the last state known. */
  readonly object: T;
  readonly previous?: T;
}

export interface StoreOptions<T> {
  readonly resource: Resource;
  /** The fields worth keeping: 10,000 claims cost 7 MB projected, 30 MB whole. A throw skips the
   * object, with a log line. */
  readonly transform: (raw: unknown) => T;
  /** A throw is logged and otherwise ignored. */
  readonly onChange?: (change: Change<T>) => void;
  readonly log: Logger;
}

/** The objects by key. A throwing observer or projection concerns one object only. */
export class Store<T extends Transformed> {
  readonly #objects = new Map<string, T>();
  readonly #options: StoreOptions<T>;

  constructor(options: StoreOptions<T>) {
    this.#options = options;
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

  put(raw: unknown, seen?: Set<string>): void {
    const key = rawKey(raw);
    if (key === undefined) return;
    seen?.add(key);
    const previous = this.#objects.get(key);
    // A list repeats what is known: same object, same version.
    if (
      previous !== undefined &&
      previous.metadata.resourceVersion === versionOf(raw) &&
      previous.metadata.uid === metadataOf(raw)?.uid
    )
      return;
    const object = this.#project(raw, key);
    if (object === undefined) return;
    this.#objects.set(key, object);
    if (previous === undefined) {
      this.#tell({ type: 'added', object });
    } else if (previous.metadata.uid === object.metadata.uid) {
      this.#tell({ type: 'modified', object, previous });
    } else {
      this.#tell({ type: 'deleted', object: previous, previous });
      this.#tell({ type: 'added', object });
    }
  }

  remove(raw: unknown): void {
    const key = rawKey(raw);
    const previous = key === undefined ? undefined : this.#objects.get(key);
    if (key === undefined || previous === undefined) return;
    this.#objects.delete(key);
    this.#tell({ type: 'deleted', object: this.#project(raw, key) ?? previous, previous });
  }

  /** Whatever a complete list doesn't name has vanished while nobody watched. */
  keepOnly(seen: ReadonlySet<string>): void {
    for (const [key, previous] of this.#objects) {
      if (seen.has(key)) continue;
      this.#objects.delete(key);
      this.#tell({ type: 'deleted', object: previous, previous });
    }
  }

  #project(raw: unknown, key: string): T | undefined {
    try {
      return this.#options.transform(raw);
    } catch (error) {
      this.#options.log.error(
        { resource: this.#options.resource.plural, object: key, error: wordsOf(error) },
        'object can not be read, skipped',
      );
      return undefined;
    }
  }

  #tell(change: Change<T>): void {
    try {
      this.#options.onChange?.(change);
    } catch (error) {
      const { resource, log } = this.#options;
      log.error(
        {
          resource: resource.plural,
          object: keyOf(change.object.metadata),
          change: change.type,
          err: error,
        },
        'handler of a change failed',
      );
    }
  }
}

function metadataOf(raw: unknown): Partial<ObjectMeta> | undefined {
  if (typeof raw !== 'object' || raw === null || !('metadata' in raw)) return undefined;
  return typeof raw.metadata === 'object' && raw.metadata !== null ? raw.metadata : undefined;
}

function rawKey(raw: unknown): string | undefined {
  const metadata = metadataOf(raw);
  return metadata?.name === undefined
    ? undefined
    : keyOf({ namespace: metadata.namespace, name: metadata.name });
}

/** resourceVersion of an object as the wire has it. */
export function versionOf(raw: unknown): string | undefined {
  return metadataOf(raw)?.resourceVersion;
}

/** One line of whatever was thrown. */
export function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

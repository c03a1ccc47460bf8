import type { KubeObject } from './kube-object.ts';
import { collectionName, type Resource } from './resource.ts';

export type ChangeType = 'ADDED' | 'MODIFIED' | 'DELETED';

/** An object at one resourceVersion. It is encoded at most once. */
export class Stored {
  readonly key: string;
  readonly object: KubeObject;
  readonly revision: number;
  #bytes: Buffer | undefined;

  constructor(key: string, object: KubeObject, revision: number) {
    this.key = key;
    this.object = object;
    this.revision = revision;
  }

  /** The object as JSON; begins with `{"kind":…,"apiVersion":…,`. */
  get bytes(): Buffer {
    this.#bytes ??= Buffer.from(JSON.stringify(this.object));
    return this.#bytes;
  }
}

/** One write, as watches see it. For a deletion, `stored` is the last state with the
 * resourceVersion of the deletion. */
export class Change {
  readonly type: ChangeType;
  readonly stored: Stored;
  readonly previous: Stored | undefined;
  #frame: Buffer | undefined;

  constructor(type: ChangeType, stored: Stored, previous: Stored | undefined) {
    this.type = type;
    this.stored = stored;
    this.previous = previous;
  }

  /** The state before this change with the revision of this change: watches send it for an object
   * that no longer matches. */
  get lastState(): Stored {
    const { previous, stored } = this;
    if (this.type === 'DELETED' || previous === undefined) return stored;
    const metadata = { ...previous.object.metadata, resourceVersion: String(stored.revision) };
    return new Stored(stored.key, { ...previous.object, metadata }, stored.revision);
  }

  /** The encoded event for watches that use the stored form. */
  get frame(): Buffer {
    this.#frame ??= watchFrame(this.type, this.stored.bytes);
    return this.#frame;
  }
}

/** `{"type":…,"object":…}` and a newline. */
export function watchFrame(type: string, object: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`{"type":"${type}","object":`), object, Buffer.from('}\n')]);
}

export type Listener = (change: Change) => void;

/** All objects of one kind, and their latest changes. */
export class Collection {
  readonly objects = new Map<string, Stored>();
  readonly listeners = new Set<Listener>();
  /** Oldest first. */
  history: Change[] = [];
  /** Changes up to this revision are no longer in the history. */
  compactedTo = 0;
  #sorted: readonly Stored[] | undefined;

  /** Ordered by key, as in etcd. */
  get sorted(): readonly Stored[] {
    this.#sorted ??= [...this.objects.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
    return this.#sorted;
  }

  forgetOrder(): void {
    this.#sorted = undefined;
  }
}

export interface StoreOptions {
  /** Changes kept per kind; older ones answer 410. */
  readonly historySize: number;
}

/** Objects in memory with one increasing resourceVersion. The rules are in operations.ts. */
export class Store {
  readonly #collections = new Map<string, Collection>();
  readonly #historySize: number;
  #revision = 1;

  constructor(options: StoreOptions) {
    this.#historySize = options.historySize;
  }

  /** The resourceVersion of the latest write. */
  get revision(): number {
    return this.#revision;
  }

  collection(resource: Resource): Collection {
    const name = collectionName(resource);
    let found = this.#collections.get(name);
    if (found === undefined) {
      found = new Collection();
      this.#collections.set(name, found);
    }
    return found;
  }

  /** Stores an object under the next revision. */
  put(collection: Collection, key: string, object: KubeObject): Stored {
    const previous = collection.objects.get(key);
    this.#revision += 1;
    object.metadata.resourceVersion = String(this.#revision);
    const stored = new Stored(key, object, this.#revision);
    collection.objects.set(key, stored);
    collection.forgetOrder();
    this.#publish(
      collection,
      new Change(previous === undefined ? 'ADDED' : 'MODIFIED', stored, previous),
    );
    return stored;
  }

  /** Removes an object; watches get its last state with the next revision. */
  remove(collection: Collection, previous: Stored, last: KubeObject = previous.object): Stored {
    this.#revision += 1;
    const object: KubeObject = {
      ...last,
      metadata: { ...last.metadata, resourceVersion: String(this.#revision) },
    };
    const stored = new Stored(previous.key, object, this.#revision);
    collection.objects.delete(previous.key);
    collection.forgetOrder();
    this.#publish(collection, new Change('DELETED', stored, previous));
    return stored;
  }

  /** Drops the history, as compaction does: watches and lists of earlier revisions get 410. */
  compact(): void {
    for (const collection of this.#collections.values()) {
      collection.history = [];
      collection.compactedTo = this.#revision;
    }
  }

  #publish(collection: Collection, change: Change): void {
    collection.history.push(change);
    if (collection.history.length >= this.#historySize * 2) {
      const dropped = collection.history.length - this.#historySize;
      collection.compactedTo =
        collection.history[dropped - 1]?.stored.revision ?? collection.compactedTo;
      collection.history = collection.history.slice(dropped);
    }
    for (const listener of collection.listeners) listener(change);
  }
}

/** The changes after a revision, oldest first. */
export function changesAfter(collection: Collection, revision: number): readonly Change[] {
  const { history } = collection;
  let from = history.length;
  while (from > 0 && (history[from - 1]?.stored.revision ?? 0) > revision) from -= 1;
  return history.slice(from);
}

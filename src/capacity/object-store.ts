import type { KubeClient } from '../kube/client.ts';
import { KubeError } from '../kube/kube-error.ts';
import type { StorageCapacity } from '../kube/objects.ts';
import { type Change, type Reflector, startReflector } from '../kube/reflector.ts';
import { type Resource, storageCapacities } from '../kube/resources.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Registry } from '../runtime/metrics.ts';
import { type CapacityItem, itemId } from './items.ts';
import {
  type CapacityManager,
  chooseObject,
  itemOf,
  selectorOf,
  transformCapacity,
} from './objects.ts';

export interface ObjectStoreOptions {
  readonly client: KubeClient;
  /** The one namespace that has our objects. */
  readonly namespace: string;
  readonly manager: CapacityManager;
  /** An object has come, changed or gone; not for one of `created`. */
  readonly onChange: (change: Change<StorageCapacity>) => void;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** One of our objects. */
export interface ListedObject {
  readonly object: StorageCapacity;
  /** Of the item that it stands for; undefined for none. */
  readonly itemId: string | undefined;
}

/** Pause after the API version could not be found out. */
const RETRY_MS = 2_000;

/** Our CSIStorageCapacity objects, watched. */
export class ObjectStore {
  /** With the version that the API server has. */
  resource: Resource = storageCapacities;
  readonly #options: ObjectStoreOptions;
  readonly #stopped = new AbortController();
  /** By their names. */
  readonly #listed = new Map<string, ListedObject>();
  /** By item id, then by name. */
  readonly #byItem = new Map<string, Map<string, StorageCapacity>>();
  #reflector: Reflector<StorageCapacity> | undefined;
  #trouble: string | undefined = 'CSIStorageCapacity objects: not listed yet';

  constructor(options: ObjectStoreOptions) {
    this.#options = options;
  }

  /** Finds out which version the API server has, and lists. Resolves when all objects are listed,
   * or when the store is stopped. */
  async open(): Promise<void> {
    const { signal } = this.#stopped;
    const resource = await this.#findVersion();
    if (resource === undefined) return;
    this.resource = resource;
    const { client, namespace, manager, onChange, log, metrics } = this.#options;
    this.#reflector = startReflector({
      client,
      resource,
      namespace,
      labelSelector: selectorOf(manager),
      transform: transformCapacity,
      onChange: (change) => {
        const { name, uid } = change.object.metadata;
        const isKnown = this.#listed.get(name)?.object.metadata.uid === uid;
        this.#index(change);
        if (change.type !== 'added' || !isKnown) onChange(change);
      },
      log,
      metrics,
    });
    await this.#reflector.waitForSync(signal).catch(() => undefined);
  }

  /** The object that stands for an item. */
  get(item: CapacityItem): StorageCapacity | undefined {
    const found = this.#byItem.get(itemId(item));
    return found && chooseObject(found.values());
  }

  /** Notes an object that the API server has just answered, before the watch shows it. */
  created(object: unknown): void {
    this.#index({ type: 'added', object: transformCapacity(object) });
  }

  /** Notes that an object does not exist any more. */
  gone(name: string): void {
    this.#remove(name);
  }

  /** All objects, also those that stand for no item. */
  list(): Iterable<ListedObject> {
    return this.#listed.values();
  }

  /** Why the objects are not known, in one line; undefined while they are. */
  get trouble(): string | undefined {
    return this.#reflector === undefined ? this.#trouble : this.#reflector.trouble;
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#reflector?.stop();
  }

  /** v1, or v1beta1 of servers before Kubernetes 1.24. */
  async #findVersion(): Promise<Resource | undefined> {
    const { clock, log } = this.#options;
    const { signal } = this.#stopped;
    const versions = [storageCapacities, { ...storageCapacities, version: 'v1beta1' }];
    while (!signal.aborted) {
      for (const resource of versions) if (await this.#isServed(resource)) return resource;
      log.warn({ reason: this.#trouble }, 'can’t list CSIStorageCapacity objects; trying again');
      await clock.sleep(RETRY_MS, signal);
    }
    return undefined;
  }

  async #isServed(resource: Resource): Promise<boolean> {
    const { client, namespace } = this.#options;
    try {
      await client.list(resource, { namespace, limit: 1, signal: this.#stopped.signal });
      return true;
    } catch (error) {
      // The reflector reports any other refusal, and goes on when it has ended.
      if (error instanceof KubeError && error.code > 0 && error.code < 500 && error.code !== 404)
        return true;
      this.#trouble = `CSIStorageCapacity objects: ${messageOf(error)}`;
      return false;
    }
  }

  #index({ type, object }: Change<StorageCapacity>): void {
    const { name } = object.metadata;
    const item = itemOf(object);
    const id = item && itemId(item);
    if (type === 'deleted' || this.#listed.get(name)?.itemId !== id) this.#remove(name);
    if (type === 'deleted') return;
    this.#listed.set(name, { object, itemId: id });
    if (id === undefined) return;
    const others = this.#byItem.get(id) ?? new Map<string, StorageCapacity>();
    this.#byItem.set(id, others.set(name, object));
  }

  #remove(name: string): void {
    const id = this.#listed.get(name)?.itemId;
    this.#listed.delete(name);
    if (id === undefined) return;
    const others = this.#byItem.get(id);
    others?.delete(name);
    if (others?.size === 0) this.#byItem.delete(id);
  }
}

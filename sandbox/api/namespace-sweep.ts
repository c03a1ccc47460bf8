import { namespaces } from './kinds/core.ts';
import type { Registry } from './registry.ts';
import type { Resource } from './resource.ts';
import type { Store } from './store.ts';

/** The parts of Operations that the sweep uses. */
export interface SweepParts {
  readonly registry: Registry;
  readonly store: Store;
  delete(place: {
    readonly resource: Resource;
    readonly namespace: string;
    readonly name: string;
  }): unknown;
}

/** Does the work of the namespace controller: deletes the contents of a deleted namespace, and then
 * the namespace. */
export class NamespaceSweep {
  readonly #parts: SweepParts;

  constructor(parts: SweepParts) {
    this.#parts = parts;
  }

  /** Deletes all objects in a namespace. Those with finalizers stay until the finalizers are
   * removed. */
  empty(namespace: string): void {
    for (const resource of this.#stored()) {
      for (const each of this.#parts.store.collection(resource).sorted) {
        const { metadata } = each.object;
        if (metadata.namespace === namespace)
          this.#parts.delete({ resource, namespace, name: metadata.name });
      }
    }
    const home = this.#parts.store.collection(namespaces).objects.get(namespace);
    if (home !== undefined && this.isEmpty(namespace))
      this.#parts.store.remove(this.#parts.store.collection(namespaces), home);
  }

  isEmpty(namespace: string): boolean {
    return this.#stored().every((resource) =>
      this.#parts.store
        .collection(resource)
        .sorted.every((each) => each.object.metadata.namespace !== namespace),
    );
  }

  #stored() {
    return [...this.#parts.registry.all()].filter(
      (each) => each.namespaced && each.view === undefined,
    );
  }
}

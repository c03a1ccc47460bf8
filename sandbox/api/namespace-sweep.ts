import { namespaces } from './kinds/core.ts';
import type { Registry } from './registry.ts';
import type { Resource } from './resource.ts';
import type { Store } from './store.ts';

/** What the sweep works with; operations.ts is all of it. */
export interface SweepParts {
  readonly registry: Registry;
  readonly store: Store;
  delete(place: {
    readonly resource: Resource;
    readonly namespace: string;
    readonly name: string;
  }): unknown;
}

/** What the namespace controller does: a namespace that is deleted takes its contents along, and
 * goes when the last of them is gone. */
export class NamespaceSweep {
  readonly #parts: SweepParts;

  constructor(parts: SweepParts) {
    this.#parts = parts;
  }

  /** Deletes all that lives in a namespace; what finalizers hold stays until they are gone. */
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

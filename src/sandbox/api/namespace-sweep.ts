import { namespaces } from './kinds/core.ts';
import type { Operations } from './operations.ts';

/** What the namespace controller does: a namespace that is deleted takes its contents along, and goes when the last of them is gone. */
export class NamespaceSweep {
  readonly #operations: Operations;

  constructor(operations: Operations) {
    this.#operations = operations;
  }

  /** Deletes all that lives in a namespace; what finalizers hold stays until they are gone. */
  empty(namespace: string): void {
    for (const resource of this.#stored()) {
      for (const each of this.#operations.store.collection(resource).sorted) {
        const { metadata } = each.object;
        if (metadata.namespace === namespace) this.#operations.delete({ resource, namespace, name: metadata.name });
      }
    }
    const home = this.#operations.store.collection(namespaces).objects.get(namespace);
    if (home !== undefined && this.isEmpty(namespace)) this.#operations.store.remove(this.#operations.store.collection(namespaces), home);
  }

  isEmpty(namespace: string): boolean {
    return this.#stored().every((resource) =>
      this.#operations.store.collection(resource).sorted.every((each) => each.object.metadata.namespace !== namespace),
    );
  }

  #stored() {
    return [...this.#operations.registry.all()].filter((each) => each.namespaced && each.view === undefined);
  }
}

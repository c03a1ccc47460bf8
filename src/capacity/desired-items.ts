import type { StorageCapacity } from '../kube/objects.ts';
import type { TopologyTerm } from '../topology/term.ts';
import { type CapacityItem, itemId, segmentText } from './items.ts';
import type { ListedObject } from './object-store.ts';
import { type CapacityManager, chooseObject, objectName } from './objects.ts';

/** An item that is published. */
export interface DesiredItem {
  readonly id: string;
  readonly item: CapacityItem;
  /** Unix ms since when it is wanted. */
  readonly sinceMs: number;
}

/** How the objects compare with the items. */
export interface Comparison {
  /** Ids of the items that have an object. */
  readonly published: ReadonlySet<string>;
  /** Objects that stand for no item, or for one that has another object. */
  readonly superfluous: readonly StorageCapacity[];
}

/** The items that should be published now. */
export class DesiredItems {
  #items = new Map<string, DesiredItem>();
  /** By segmentText: every volume that comes or goes asks for those of a segment. */
  #bySegment = new Map<string, CapacityItem[]>();

  get size(): number {
    return this.#items.size;
  }

  has(id: string): boolean {
    return this.#items.has(id);
  }

  all(): Iterable<DesiredItem> {
    return this.#items.values();
  }

  ofClass(className: string): readonly CapacityItem[] {
    return this.#select((item) => item.className === className);
  }

  /** The items of exactly this segment, of all classes. */
  ofSegment(segment: TopologyTerm): readonly CapacityItem[] {
    return this.#bySegment.get(segmentText(segment)) ?? [];
  }

  /** Replaces the items.
   * @returns those that are new */
  replace(items: readonly CapacityItem[], nowMs: number): readonly CapacityItem[] {
    const known = this.#items;
    this.#items = new Map(
      items.map((item) => {
        const id = itemId(item);
        return [id, known.get(id) ?? { id, item, sinceMs: nowMs }];
      }),
    );
    this.#bySegment = new Map();
    for (const { item } of this.#items.values()) {
      const text = segmentText(item.segment);
      const others = this.#bySegment.get(text);
      if (others === undefined) this.#bySegment.set(text, [item]);
      else others.push(item);
    }
    return this.#select((_, id) => !known.has(id));
  }

  compare(objects: Iterable<ListedObject>, manager: CapacityManager): Comparison {
    const byItem = new Map<string, StorageCapacity[]>();
    const superfluous: StorageCapacity[] = [];
    for (const { object, itemId: id } of objects) {
      if (id === undefined || !this.#items.has(id)) superfluous.push(object);
      else byItem.set(id, [...(byItem.get(id) ?? []), object]);
    }
    for (const [id, others] of byItem) superfluous.push(...this.#duplicates(id, others, manager));
    return { published: new Set(byItem.keys()), superfluous };
  }

  #duplicates(
    id: string,
    objects: readonly StorageCapacity[],
    manager: CapacityManager,
  ): readonly StorageCapacity[] {
    const desired = this.#items.get(id);
    if (desired === undefined || objects.length < 2) return [];
    const kept = chooseObject(objects, objectName(manager, desired.item));
    return objects.filter((object) => object !== kept);
  }

  #select(isWanted: (item: CapacityItem, id: string) => boolean): readonly CapacityItem[] {
    return [...this.#items.values()]
      .filter(({ id, item }) => isWanted(item, id))
      .map(({ item }) => item);
  }
}

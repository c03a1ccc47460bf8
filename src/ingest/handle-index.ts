import type { Change } from '../kube/reflector.ts';
import type { Volume } from '../kube/objects.ts';
import { identityOf, mayBeSame } from '../volumes/handles.ts';

/** Finds the PVs that share a volume in the driver with another PV. */
export class HandleIndex {
  /** By driver and handle: the PVs that name it, by PV name. */
  readonly #byHandle = new Map<string, Map<string, Volume>>();

  /** Updates the index with a change of a PV. */
  apply(change: Change<Volume>): void {
    if (change.previous !== undefined) this.#remove(change.previous);
    if (change.type === 'deleted') this.#remove(change.object);
    else this.#add(change.object);
  }

  isShared(volume: Volume): boolean {
    for (const other of this.#sharing(volume).values())
      if (other.metadata.name !== volume.metadata.name && mayBeSame(other, volume)) return true;
    return false;
  }

  /** Names of the PVs that share the handle that this change took from a PV, because the PV was
   * deleted or names another handle now. To be called after `apply`. */
  othersOf(change: Change<Volume>): readonly string[] {
    const isDeleted = change.type === 'deleted';
    const before = isDeleted ? change.object : change.previous;
    if (before === undefined || (!isDeleted && keyOf(before) === keyOf(change.object))) return [];
    return [...this.#sharing(before).keys()].filter((other) => other !== before.metadata.name);
  }

  #sharing(volume: Volume): ReadonlyMap<string, Volume> {
    return this.#byHandle.get(keyOf(volume) ?? '') ?? new Map<string, Volume>();
  }

  #add(volume: Volume): void {
    const key = keyOf(volume);
    if (key === undefined) return;
    const sharing = this.#byHandle.get(key);
    if (sharing === undefined) this.#byHandle.set(key, new Map([[volume.metadata.name, volume]]));
    else sharing.set(volume.metadata.name, volume);
  }

  #remove(volume: Volume): void {
    const key = keyOf(volume) ?? '';
    const sharing = this.#byHandle.get(key);
    sharing?.delete(volume.metadata.name);
    if (sharing?.size === 0) this.#byHandle.delete(key);
  }
}

function keyOf(volume: Volume): string | undefined {
  const identity = identityOf(volume);
  return identity === undefined ? undefined : `${identity.driver}/${identity.id}`;
}

import type { Change } from '../../kube/reflector.ts';
import type { Volume } from '../../kube/objects.ts';
import type { HandleSharers } from '../../records/shared-handles.ts';
import { identityOf, mayBeSame } from '../../volumes/handles.ts';

/** Finds the PVs that share a volume in the driver with another PV. */
export class HandleIndex {
  /** By driver and handle: the PVs that name it, by PV name. */
  readonly #byHandle = new Map<string, Map<string, Volume>>();

  /** Updates the index with a change of a PV.
   * @returns whether it changed which PVs share a handle */
  apply({ type, object, previous }: Change<Volume>): boolean {
    const before = previous ?? (type === 'deleted' ? object : undefined);
    const after = type === 'deleted' ? undefined : object;
    const hasLeft = before !== undefined && this.#remove(before);
    const hasJoined = after !== undefined && this.#add(after);
    const isSameHandle = before && after && keyOf(before) === keyOf(after);
    return isSameHandle !== true && (hasLeft || hasJoined);
  }

  /** Another PV that may stand for the same volume, by its name. */
  findOther(volume: Volume): string | undefined {
    for (const [name, other] of this.#sharing(volume))
      if (name !== volume.metadata.name && mayBeSame(other, volume)) return name;
    return undefined;
  }

  /** The PVs of a driver by each handle that several of them name. */
  sharedOf(driver: string): HandleSharers {
    const shared = new Map<string, readonly string[]>();
    for (const sharing of this.#byHandle.values()) {
      const [first] = sharing.values();
      const identity = sharing.size > 1 && first !== undefined ? identityOf(first) : undefined;
      if (identity?.driver === driver) shared.set(identity.id, [...sharing.keys()]);
    }
    return shared;
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

  /** @returns whether it shares its handle now */
  #add(volume: Volume): boolean {
    const key = keyOf(volume);
    if (key === undefined) return false;
    const sharing = this.#byHandle.get(key) ?? new Map<string, Volume>();
    this.#byHandle.set(key, sharing.set(volume.metadata.name, volume));
    return sharing.size > 1;
  }

  /** @returns whether it shared its handle until now */
  #remove(volume: Volume): boolean {
    const key = keyOf(volume) ?? '';
    const sharing = this.#byHandle.get(key);
    if (sharing?.delete(volume.metadata.name) !== true) return false;
    if (sharing.size === 0) this.#byHandle.delete(key);
    return sharing.size > 0;
  }
}

function keyOf(volume: Volume): string | undefined {
  const identity = identityOf(volume);
  return identity === undefined ? undefined : `${identity.driver}/${identity.id}`;
}

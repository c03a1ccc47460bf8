import type { Change } from '../kube/reflector.ts';
import type { Volume } from '../kube/objects.ts';
import { identityOf, mayBeSame } from '../volumes/handles.ts';

/** Which volumes more than one PV stands for. */
export class HandleIndex {
  /** PVs by their volume, then by name. */
  readonly #holders = new Map<string, Map<string, Volume>>();

  /** Takes in a change of a volume. */
  apply(change: Change<Volume>): void {
    if (change.previous !== undefined) this.#remove(change.previous);
    if (change.type === 'deleted') this.#remove(change.object);
    else this.#add(change.object);
  }

  isShared(volume: Volume): boolean {
    const holders = this.#holders.get(keyOf(volume) ?? '');
    if (holders === undefined || holders.size < 2) return false;
    for (const other of holders.values())
      if (other.metadata.name !== volume.metadata.name && mayBeSame(other, volume)) return true;
    return false;
  }

  /** Names of the PVs that a volume is left to by a change that has been taken in: that of another
   * one's deletion, or of its source. */
  left(change: Change<Volume>): readonly string[] {
    const before = change.type === 'deleted' ? change.object : change.previous;
    if (
      before === undefined ||
      (change.type !== 'deleted' && keyOf(before) === keyOf(change.object))
    )
      return [];
    const { name } = before.metadata;
    return [...(this.#holders.get(keyOf(before) ?? '')?.keys() ?? [])].filter(
      (other) => other !== name,
    );
  }

  #add(volume: Volume): void {
    const key = keyOf(volume);
    if (key === undefined) return;
    const holders = this.#holders.get(key);
    if (holders === undefined) this.#holders.set(key, new Map([[volume.metadata.name, volume]]));
    else holders.set(volume.metadata.name, volume);
  }

  #remove(volume: Volume): void {
    const key = keyOf(volume);
    const holders = key === undefined ? undefined : this.#holders.get(key);
    if (key === undefined || holders === undefined) return;
    holders.delete(volume.metadata.name);
    if (holders.size === 0) this.#holders.delete(key);
  }
}

function keyOf(volume: Volume): string | undefined {
  const found = identityOf(volume);
  return found === undefined ? undefined : `${found.driver}/${found.id}`;
}

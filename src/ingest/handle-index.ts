import type { Change } from '../kube/reflector.ts';
import type { Volume } from '../kube/objects.ts';
import { identityOf } from '../volumes/handles.ts';

/** Which volumes more than one PV stands for. */
export class HandleIndex {
  readonly #namesByVolume = new Map<string, Set<string>>();

  /** Takes in a change of a volume. */
  apply(change: Change<Volume>): void {
    if (change.previous !== undefined) this.#remove(change.previous);
    if (change.type === 'deleted') this.#remove(change.object);
    else this.#add(change.object);
  }

  isShared(volume: Volume): boolean {
    const key = keyOf(volume);
    return key !== undefined && (this.#namesByVolume.get(key)?.size ?? 0) > 1;
  }

  #add(volume: Volume): void {
    const key = keyOf(volume);
    if (key === undefined) return;
    const names = this.#namesByVolume.get(key);
    if (names === undefined) this.#namesByVolume.set(key, new Set([volume.metadata.name]));
    else names.add(volume.metadata.name);
  }

  #remove(volume: Volume): void {
    const key = keyOf(volume);
    const names = key === undefined ? undefined : this.#namesByVolume.get(key);
    if (key === undefined || names === undefined) return;
    names.delete(volume.metadata.name);
    if (names.size === 0) this.#namesByVolume.delete(key);
  }
}

function keyOf(volume: Volume): string | undefined {
  const found = identityOf(volume);
  return found === undefined ? undefined : `${found.driver}/${found.id}`;
}

import type { Change } from '../kube/reflector.ts';
import type { Volume } from '../kube/objects.ts';

/** Which handles more than one PV has. */
export class HandleIndex {
  readonly #volumesByHandle = new Map<string, Set<string>>();

  /** Takes in a change of a volume. */
  apply(change: Change<Volume>): void {
    if (change.previous !== undefined) this.#remove(change.previous);
    if (change.type === 'deleted') this.#remove(change.object);
    else this.#add(change.object);
  }

  isShared(volume: Volume): boolean {
    const handle = handleOf(volume);
    return handle !== undefined && (this.#volumesByHandle.get(handle)?.size ?? 0) > 1;
  }

  #add(volume: Volume): void {
    const handle = handleOf(volume);
    if (handle === undefined) return;
    const names = this.#volumesByHandle.get(handle);
    if (names === undefined) this.#volumesByHandle.set(handle, new Set([volume.metadata.name]));
    else names.add(volume.metadata.name);
  }

  #remove(volume: Volume): void {
    const handle = handleOf(volume);
    const names = handle === undefined ? undefined : this.#volumesByHandle.get(handle);
    if (handle === undefined || names === undefined) return;
    names.delete(volume.metadata.name);
    if (names.size === 0) this.#volumesByHandle.delete(handle);
  }
}

function handleOf({ spec: { csi } }: Volume): string | undefined {
  return csi === undefined ? undefined : `${csi.driver}/${csi.volumeHandle}`;
}

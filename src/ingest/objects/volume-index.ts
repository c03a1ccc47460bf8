import type { Volume } from '../../kube/objects.ts';
import { handleHash, identityOf } from '../../volumes/handles.ts';

const NO_HANDLE = -1;

/** The name of a claim's PV, unless --volume-name-prefix or --volume-name-uuid-length give another.
 * By this name alone, as upstream does, a claim is found to have a PV
 * (sig-storage-lib-external-provisioner controller/controller.go provisionClaimOperation). */
export function defaultNameOf(claimUid: string): string {
  return `pvc-${claimUid}`;
}

/** All PVs by their names: which exist, and which of them may share a handle. Keeps a name
 * and a number of each PV, of which there are tens of thousands. Two handles with the same number
 * count as one; whoever is told that they are shared compares the PVs. */
export class VolumeIndex {
  /** By name of the PV: the hash of its driver and handle, or NO_HANDLE. */
  readonly #hashes = new Map<string, number>();
  /** By hash: the name of the PV, or the names of several. */
  readonly #names = new Map<number, string | Set<string>>();
  /** Names of PVs that the list under way did not contain so far. */
  #unlisted = new Set<string>();

  get size(): number {
    return this.#hashes.size;
  }

  /** Adds or replaces a PV.
   * @returns whether that changed which PVs share a handle */
  put(volume: Volume): boolean {
    const { name } = volume.metadata;
    this.#unlisted.delete(name);
    const identity = identityOf(volume);
    const hash = identity === undefined ? NO_HANDLE : handleHash(identity);
    const before = this.#hashes.get(name);
    if (before === hash) return false;
    this.#hashes.set(name, hash);
    const hasLeft = this.#leave(name, before);
    return this.#join(name, hash) || hasLeft;
  }

  /** @returns whether that changed which PVs share a handle */
  remove(name: string): boolean {
    this.#unlisted.delete(name);
    const changesSharing = this.#leave(name, this.#hashes.get(name));
    this.#hashes.delete(name);
    return changesSharing;
  }

  beginList(): void {
    this.#unlisted = new Set(this.#hashes.keys());
  }

  /** @returns the names of the PVs that the list did not contain; they are to be removed */
  endList(): readonly string[] {
    const gone = [...this.#unlisted];
    this.#unlisted.clear();
    return gone;
  }

  has(name: string): boolean {
    return this.#hashes.has(name);
  }

  /** The names of the PVs by each handle, as its hash, that several of them may have. */
  sharedHandles(): ReadonlyMap<number, readonly string[]> {
    const shared = new Map<number, readonly string[]>();
    for (const [hash, names] of this.#names)
      if (typeof names !== 'string') shared.set(hash, [...names]);
    return shared;
  }

  /** @returns whether other PVs have the hash */
  #join(name: string, hash: number): boolean {
    if (hash === NO_HANDLE) return false;
    const others = this.#names.get(hash);
    if (others === undefined) this.#names.set(hash, name);
    else if (typeof others === 'string') this.#names.set(hash, new Set([others, name]));
    else others.add(name);
    return others !== undefined;
  }

  /** @returns whether other PVs have the hash */
  #leave(name: string, hash = NO_HANDLE): boolean {
    const names = this.#names.get(hash);
    if (names === undefined) return false;
    if (typeof names === 'string') {
      this.#names.delete(hash);
      return false;
    }
    names.delete(name);
    const [first, second] = names;
    if (first !== undefined && second === undefined) this.#names.set(hash, first);
    return true;
  }
}

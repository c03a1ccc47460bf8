import type { Volume } from '../../kube/objects.ts';
import { handleHash, identityOf } from '../../volumes/handles.ts';

const NO_HANDLE = -1;

/** The name of a claim's PV, unless --volume-name-prefix or --volume-name-uuid-length give another.
 * Ingest, as upstream, knows only by this name that a claim has a PV
 * (sig-storage-lib-external-provisioner controller/controller.go provisionClaimOperation). */
export function defaultNameOf(claimUid: string): string {
  return `pvc-${claimUid}`;
}

/** Knows which PVs exist, and which may share a handle. Keeps only the name and a hash of each PV,
 * of which there are tens of thousands. Two handles may have the same hash, so readers compare the
 * PVs themselves. */
export class VolumeIndex {
  /** By name of the PV: the hash of its driver and handle, or NO_HANDLE. */
  readonly #hashes = new Map<string, number>();
  /** How many PVs have each hash. */
  readonly #counts = new Map<number, number>();
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
    const hasLeft = this.#count(before, -1);
    return this.#count(hash, 1) || hasLeft;
  }

  /** @returns whether that changed which PVs share a handle */
  remove(name: string): boolean {
    this.#unlisted.delete(name);
    const changesSharing = this.#count(this.#hashes.get(name), -1);
    this.#hashes.delete(name);
    return changesSharing;
  }

  beginList(): void {
    this.#unlisted = new Set(this.#hashes.keys());
  }

  /** @returns the names of the PVs that the list did not contain; the caller removes them */
  endList(): readonly string[] {
    const gone = [...this.#unlisted];
    this.#unlisted.clear();
    return gone;
  }

  has(name: string): boolean {
    return this.#hashes.has(name);
  }

  /** The names of the PVs that may share a handle, by the handle's hash. */
  sharedHandles(): ReadonlyMap<number, readonly string[]> {
    const shared = new Map<number, string[]>();
    for (const [hash, count] of this.#counts) if (count > 1) shared.set(hash, []);
    if (shared.size > 0) for (const [name, hash] of this.#hashes) shared.get(hash)?.push(name);
    return shared;
  }

  /** Adds a PV to those of a hash, or removes one.
   * @returns whether other PVs have the hash */
  #count(hash: number | undefined, change: 1 | -1): boolean {
    if (hash === undefined || hash === NO_HANDLE) return false;
    const before = this.#counts.get(hash) ?? 0;
    const after = before + change;
    if (after === 0) this.#counts.delete(hash);
    else this.#counts.set(hash, after);
    return Math.min(before, after) > 0;
  }
}

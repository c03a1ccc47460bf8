import type { Volume } from '../../kube/objects.ts';
import { handleHash, identityOf } from '../../volumes/handles.ts';

const DEFAULT_PREFIX = 'pvc-';
const NO_HANDLE = -1;

/** All PVs by their names: which claims have one, and which PVs may share a handle. Keeps a name
 * and a number of each PV, of which there are tens of thousands. Two handles with the same number
 * count as one; whoever is told that they are shared compares the PVs. */
export class VolumeIndex {
  /** By name of the PV: the hash of its driver and handle, or NO_HANDLE. */
  readonly #hashes = new Map<string, number>();
  /** By hash: the name of the PV, or the names of several. */
  readonly #names = new Map<number, string | Set<string>>();
  /** PVs that are being deleted. They do not count for their claims, which need another. */
  readonly #leaving = new Set<string>();
  /** By PV: the UID of the claim that it names, unless its own name contains that. */
  readonly #claimUids = new Map<string, string>();
  /** By claim: how many PVs name it so. */
  readonly #counts = new Map<string, number>();
  /** Names of PVs that the list under way did not contain so far. */
  #unlisted = new Set<string>();

  get size(): number {
    return this.#hashes.size;
  }

  /** Adds or replaces a PV.
   * @returns whether that changed which PVs share a handle */
  put(volume: Volume): boolean {
    const { name, deletionTimestamp } = volume.metadata;
    this.#unlisted.delete(name);
    this.#countClaim(name, -1);
    if (deletionTimestamp === undefined) this.#leaving.delete(name);
    else this.#leaving.add(name);
    const uid = volume.spec.claimRef?.uid;
    if (uid === undefined || name === DEFAULT_PREFIX + uid) this.#claimUids.delete(name);
    else this.#claimUids.set(name, uid);
    this.#countClaim(name, 1);
    const identity = identityOf(volume);
    const hash = identity === undefined ? NO_HANDLE : handleHash(identity);
    const before = this.#hashes.get(name);
    if (before === hash) return false;
    this.#hashes.set(name, hash);
    const hasLeft = this.#leave(name, before);
    return this.#join(name, hash) || hasLeft;
  }

  /** @returns  `claimUids`: the claims that need another volume if they still exist, which are the
   *   one that the PV names, and the one whose volume would have the same name
   *   (sig-storage-lib-external-provisioner controller/controller.go provisionClaimOperation) */
  remove(name: string): {
    readonly changesSharing: boolean;
    readonly claimUids: readonly string[];
  } {
    const named = this.#claimUids.get(name);
    const implied = name.startsWith(DEFAULT_PREFIX) ? name.slice(DEFAULT_PREFIX.length) : undefined;
    this.#unlisted.delete(name);
    this.#countClaim(name, -1);
    this.#leaving.delete(name);
    this.#claimUids.delete(name);
    const changesSharing = this.#leave(name, this.#hashes.get(name));
    this.#hashes.delete(name);
    return { changesSharing, claimUids: [named, implied].filter((uid) => uid !== undefined) };
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

  /** Whether a claim has a PV that is not being deleted. */
  hasVolume(claimUid: string): boolean {
    const name = DEFAULT_PREFIX + claimUid;
    return (this.#hashes.has(name) && !this.#leaving.has(name)) || this.#counts.has(claimUid);
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

  #countClaim(name: string, by: 1 | -1): void {
    const uid = this.#claimUids.get(name);
    if (uid === undefined || this.#leaving.has(name)) return;
    const count = (this.#counts.get(uid) ?? 0) + by;
    if (count === 0) this.#counts.delete(uid);
    else this.#counts.set(uid, count);
  }
}

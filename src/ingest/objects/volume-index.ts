import type { Volume } from '../../kube/objects.ts';
import type { VolumeIdentity } from '../../volumes/handles.ts';

const DEFAULT_PREFIX = 'pvc-';

/** The UIDs of the claims that need no other volume while this one exists: the claim that it names,
 * and the claim whose volume would have the same name (sig-storage-lib-external-provisioner
 * controller/controller.go provisionClaimOperation). */
export function claimsOf({ metadata, spec }: Volume): ReadonlySet<string> {
  const uids = new Set<string>();
  if (spec.claimRef?.uid !== undefined) uids.add(spec.claimRef.uid);
  if (metadata.name.startsWith(DEFAULT_PREFIX))
    uids.add(metadata.name.slice(DEFAULT_PREFIX.length));
  return uids;
}

/** What a change of a PV means for the others. */
export interface IndexChange {
  /** PVs that shared its handle until now. */
  readonly left: readonly string[];
  /** The PV that had its new handle for itself. */
  readonly joined?: string;
  /** Whether it changed which PVs share a handle. */
  readonly changesSharing: boolean;
}

const NO_CHANGE: IndexChange = { left: [], changesSharing: false };

/** All PVs by their names: which claims have one, and which PVs may share a handle. Keeps a name
 * and a number of each PV, of which there are tens of thousands. */
export class VolumeIndex {
  readonly #hash: (text: string) => number;
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

  /** @param hash  replaced in tests, by one with many collisions */
  constructor(hash: (text: string) => number = hashOf) {
    this.#hash = hash;
  }

  get size(): number {
    return this.#hashes.size;
  }

  has(name: string): boolean {
    return this.#hashes.has(name);
  }

  /** The names of all PVs that may have the handle of this one; undefined if no other may. */
  groupOf(name: string): ReadonlySet<string> | undefined {
    const names = this.#names.get(this.#hashes.get(name) ?? NO_HANDLE);
    return typeof names === 'string' ? undefined : names;
  }

  /** Adds or replaces a PV.
   * @param identity  undefined: it is not to be compared with others */
  put(volume: Volume, identity: VolumeIdentity | undefined): IndexChange {
    const { name, deletionTimestamp } = volume.metadata;
    const before = this.#hashes.get(name);
    const hash =
      identity === undefined ? NO_HANDLE : this.#hash(`${identity.driver}/${identity.id}`);
    this.#countClaim(name, -1);
    if (deletionTimestamp === undefined) this.#leaving.delete(name);
    else this.#leaving.add(name);
    const uid = volume.spec.claimRef?.uid;
    if (uid === undefined || name === DEFAULT_PREFIX + uid) this.#claimUids.delete(name);
    else this.#claimUids.set(name, uid);
    this.#countClaim(name, 1);
    if (before === hash) return NO_CHANGE;
    const left = this.#leave(name, before);
    this.#hashes.set(name, hash);
    const joined = this.#join(name, hash);
    const changesSharing = left.length > 0 || joined !== undefined;
    return { left, changesSharing, ...(typeof joined === 'string' ? { joined } : {}) };
  }

  remove(name: string): IndexChange {
    this.#countClaim(name, -1);
    this.#leaving.delete(name);
    this.#claimUids.delete(name);
    const left = this.#leave(name, this.#hashes.get(name));
    this.#hashes.delete(name);
    return { left, changesSharing: left.length > 0 };
  }

  /** Whether a claim has a PV that is not being deleted. */
  hasVolume(claimUid: string): boolean {
    const name = DEFAULT_PREFIX + claimUid;
    return (this.#hashes.has(name) && !this.#leaving.has(name)) || this.#counts.has(claimUid);
  }

  /** The names of PVs whose handles have the same hash. */
  *groups(): Generator<ReadonlySet<string>> {
    for (const names of this.#names.values()) if (typeof names !== 'string') yield names;
  }

  /** @returns who had the hash before */
  #join(name: string, hash: number): string | ReadonlySet<string> | undefined {
    if (hash === NO_HANDLE) return undefined;
    const others = this.#names.get(hash);
    if (others === undefined) this.#names.set(hash, name);
    else if (typeof others === 'string') this.#names.set(hash, new Set([others, name]));
    else others.add(name);
    return others;
  }

  #leave(name: string, hash: number | undefined): readonly string[] {
    if (hash === undefined || hash === NO_HANDLE) return [];
    const names = this.#names.get(hash);
    if (typeof names === 'string') this.#names.delete(hash);
    if (names === undefined || typeof names === 'string') return [];
    names.delete(name);
    const others = [...names];
    const [first, second] = others;
    if (first !== undefined && second === undefined) this.#names.set(hash, first);
    return others;
  }

  #countClaim(name: string, by: 1 | -1): void {
    const uid = this.#claimUids.get(name);
    if (uid === undefined || this.#leaving.has(name)) return;
    const count = (this.#counts.get(uid) ?? 0) + by;
    if (count === 0) this.#counts.delete(uid);
    else this.#counts.set(uid, count);
  }
}

const NO_HANDLE = -1;

/** 52 bits of a text: for 50,000 texts, two are alike by chance once in four million times, and
 * then the PVs are compared. */
function hashOf(text: string): number {
  let [low, high] = [0x9e3779b9, 0x85ebca6b];
  for (let i = 0; i < text.length; i += 1) {
    const code = text.charCodeAt(i);
    low = Math.imul(low ^ code, 0x01000193);
    high = Math.imul(high ^ code, 0x5bd1e995);
    high ^= high >>> 15;
  }
  low = Math.imul(low ^ (high >>> 13), 0xc2b2ae35);
  return (high & 0xfffff) * 2 ** 32 + ((low ^ (low >>> 16)) >>> 0);
}

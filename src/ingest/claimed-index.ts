import type { Change } from '../kube/reflector.ts';
import type { Volume } from '../kube/objects.ts';

const DEFAULT_PREFIX = 'pvc-';

/** The UIDs of the claims that a volume stands in for: the one it names, and the one whose volume
 * would get its name (spec 02 §5 step 2). */
export function claimsOf({ metadata, spec }: Volume): ReadonlySet<string> {
  const uids = new Set<string>();
  if (spec.claimRef?.uid !== undefined) uids.add(spec.claimRef.uid);
  if (metadata.name.startsWith(DEFAULT_PREFIX))
    uids.add(metadata.name.slice(DEFAULT_PREFIX.length));
  return uids;
}

/** Which claims, by UID, have a volume that stands in for them. One that is being deleted does not
 * count: its claim needs another. */
export class ClaimedIndex {
  readonly #volumesByClaim = new Map<string, number>();

  /** Takes in a change of a volume. */
  apply({ type, object, previous }: Change<Volume>): void {
    if (previous !== undefined) this.#count(previous, -1);
    if (type !== 'deleted') this.#count(object, 1);
  }

  has(claimUid: string): boolean {
    return this.#volumesByClaim.has(claimUid);
  }

  #count(volume: Volume, by: 1 | -1): void {
    if (volume.metadata.deletionTimestamp !== undefined) return;
    for (const uid of claimsOf(volume)) {
      const count = (this.#volumesByClaim.get(uid) ?? 0) + by;
      if (count === 0) this.#volumesByClaim.delete(uid);
      else this.#volumesByClaim.set(uid, count);
    }
  }
}

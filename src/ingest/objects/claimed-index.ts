import type { Change } from '../../kube/reflector.ts';
import type { Volume } from '../../kube/objects.ts';

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

/** The UIDs of all claims that have a volume. One that is being deleted does not count: its claim
 * needs another. */
export class ClaimedIndex {
  /** How many volumes each claim has. */
  readonly #volumesByClaim = new Map<string, number>();

  /** Updates the index with a change of a volume. */
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

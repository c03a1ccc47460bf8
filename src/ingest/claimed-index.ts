import type { Change } from '../kube/reflector.ts';
import type { Volume } from '../kube/objects.ts';

/** Which claims, by UID, have a volume that names them. One that is being deleted does not count: its claim needs another. */
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

  #count({ metadata, spec }: Volume, by: 1 | -1): void {
    const uid = spec.claimRef?.uid;
    if (uid === undefined || metadata.deletionTimestamp !== undefined) return;
    const count = (this.#volumesByClaim.get(uid) ?? 0) + by;
    if (count === 0) this.#volumesByClaim.delete(uid);
    else this.#volumesByClaim.set(uid, count);
  }
}

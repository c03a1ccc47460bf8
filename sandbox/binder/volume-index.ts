import { objectAt, textAt } from '../api/json-value.ts';
import type { KubeObject } from '../api/kube-object.ts';

/** The names of volumes by the claim in their claimRef, to find a claim's volume quickly. */
export class VolumeIndex {
  readonly #byClaim = new Map<string, Set<string>>();
  readonly #claimOf = new Map<string, string>();

  set(volume: KubeObject): void {
    const { name } = volume.metadata;
    const claim = this.claimOf(volume);
    if (this.#claimOf.get(name) === claim) return;
    this.delete(name);
    this.#claimOf.set(name, claim);
    this.#byClaim.set(claim, (this.#byClaim.get(claim) ?? new Set()).add(name));
  }

  delete(name: string): void {
    const claim = this.#claimOf.get(name) ?? '';
    this.#claimOf.delete(name);
    const names = this.#byClaim.get(claim);
    names?.delete(name);
    if (names?.size === 0) this.#byClaim.delete(claim);
  }

  /** Names of the volumes whose claimRef names this claim, with any uid.
   * @param claimKey  'namespace/name'; '' for the volumes without a claimRef */
  claimedBy(claimKey: string): Iterable<string> {
    return this.#byClaim.get(claimKey) ?? [];
  }

  /** 'namespace/name' of the claim that a volume refers to, '' for none. */
  claimOf(volume: KubeObject): string {
    const reference = objectAt(volume, 'spec', 'claimRef');
    const name = textAt(reference, 'name');
    return name === '' ? '' : `${textAt(reference, 'namespace')}/${name}`;
  }
}

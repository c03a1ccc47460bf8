import { textAt } from '../api/json-value.ts';
import type { KubeObject } from '../api/kube-object.ts';

/** Names of volumes by the claim in their claimRef, to find a claim's volume without reading all.
 */
export class VolumeIndex {
  readonly #byClaim = new Map<string, Set<string>>();
  readonly #free = new Set<string>();
  readonly #claimOf = new Map<string, string>();

  set(volume: KubeObject): void {
    const { name } = volume.metadata;
    const claim = claimKeyOf(volume) ?? '';
    if (this.#claimOf.get(name) === claim) return;
    this.delete(name);
    this.#claimOf.set(name, claim);
    if (claim === '') this.#free.add(name);
    else this.#byClaim.set(claim, (this.#byClaim.get(claim) ?? new Set()).add(name));
  }

  delete(name: string): void {
    const claim = this.#claimOf.get(name);
    if (claim === undefined) return;
    this.#claimOf.delete(name);
    this.#free.delete(name);
    const names = this.#byClaim.get(claim);
    names?.delete(name);
    if (names?.size === 0) this.#byClaim.delete(claim);
  }

  /** Names of the volumes whose claimRef names this claim, with any uid. */
  claimedBy(claimKey: string): Iterable<string> {
    return this.#byClaim.get(claimKey) ?? [];
  }

  /** Names of the volumes without a claimRef. */
  get free(): Iterable<string> {
    return this.#free;
  }
}

/** 'namespace/name' of the claim that a volume refers to, or undefined. */
export function claimKeyOf(volume: KubeObject): string | undefined {
  const name = textAt(volume, 'spec', 'claimRef', 'name');
  return name === '' ? undefined : `${textAt(volume, 'spec', 'claimRef', 'namespace')}/${name}`;
}

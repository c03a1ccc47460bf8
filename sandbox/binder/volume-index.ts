import { textAt } from '../api/json-value.ts';
import type { KubeObject } from '../api/kube-object.ts';

/** Volumes by the claim that they refer to, so that looking for a claim's volume doesn't read them
 * all. */
export class VolumeIndex {
  readonly #byClaim = new Map<string, Set<string>>();
  readonly #free = new Set<string>();
  readonly #placeOf = new Map<string, string>();

  set(volume: KubeObject): void {
    const { name } = volume.metadata;
    const claim = claimKeyOf(volume) ?? '';
    if (this.#placeOf.get(name) === claim) return;
    this.delete(name);
    this.#placeOf.set(name, claim);
    if (claim === '') this.#free.add(name);
    else this.#byClaim.set(claim, (this.#byClaim.get(claim) ?? new Set()).add(name));
  }

  delete(name: string): void {
    const claim = this.#placeOf.get(name);
    if (claim === undefined) return;
    this.#placeOf.delete(name);
    this.#free.delete(name);
    const names = this.#byClaim.get(claim);
    names?.delete(name);
    if (names?.size === 0) this.#byClaim.delete(claim);
  }

  /** Names of the volumes whose claimRef names this claim, whatever uid it has. */
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

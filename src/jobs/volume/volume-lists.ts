import { performance } from 'node:perf_hooks';
import { MAX_VIEW_AGE_MS } from '../../hints/shared-handles.ts';
import { type KubeClient, listAll } from '../../kube/client.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import { handleHash, identityOf, type VolumeIdentity } from '../../volumes/handles.ts';

/** Lists all PVs for runs that find no published view of shared handles. Runs that ask at the same
 * time share one list. It counts for five seconds after its end, as a published view does
 * (docs/decisions/0006). */
export class VolumeLists {
  readonly #kube: Pick<KubeClient, 'list'>;
  /** Names of PVs by the hash of their handle. */
  #names: ReadonlyMap<number, readonly string[]> = new Map();
  #expiresMs = -Infinity;
  #underWay: Promise<void> | undefined;

  constructor(kube: Pick<KubeClient, 'list'>) {
    this.#kube = kube;
  }

  /** The names of PVs that may have this handle; may take as long as a list of all PVs.
   * @throws KubeError */
  async sharersOf(volume: VolumeIdentity): Promise<readonly string[]> {
    if (performance.now() >= this.#expiresMs) {
      this.#underWay ??= this.#list().finally(() => (this.#underWay = undefined));
      await this.#underWay;
    }
    return this.#names.get(handleHash(volume)) ?? [];
  }

  async #list(): Promise<void> {
    this.#names = new Map();
    const names = new Map<number, string[]>();
    for await (const volume of listAll<Volume>(this.#kube, volumes)) {
      const identity = identityOf(volume);
      if (identity === undefined) continue;
      const hash = handleHash(identity);
      const { name } = volume.metadata;
      const known = names.get(hash);
      if (known === undefined) names.set(hash, [name]);
      else known.push(name);
    }
    this.#names = names;
    this.#expiresMs = performance.now() + MAX_VIEW_AGE_MS;
  }
}

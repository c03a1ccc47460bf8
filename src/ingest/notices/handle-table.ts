import { createHash } from 'node:crypto';
import type { Volume } from '../../kube/objects.ts';
import type { HandleSharers } from '../../records/shared-handles.ts';
import { identityOf } from '../../volumes/handles.ts';

/** Which handles several PVs name, found in two lists of all PVs: the first one adds each PV to
 * `HandleTable`, which finds the handles; the second one, needed only if there are any, adds each
 * to `SharedNames`, which finds the names. */
export class HandleTable {
  /** A hash of a PV’s name by a hash of its driver and handle: 70 bytes for a PV. */
  readonly #nameByHandle = new Map<number, number>();
  readonly #shared = new Set<number>();

  /** Whether a handle is shared. A collision of hashes may say so too; the names tell. */
  get hasShared(): boolean {
    return this.#shared.size > 0;
  }

  /** Adds a PV; once more does no harm.
   * @returns whether another PV has its handle */
  add(volume: Volume): boolean {
    const handle = hashOfHandle(volume);
    if (handle === undefined) return false;
    const name = hashOf(volume.metadata.name);
    const other = this.#nameByHandle.get(handle);
    if (other === undefined) this.#nameByHandle.set(handle, name);
    else if (other !== name) this.#shared.add(handle);
    return other !== undefined && other !== name;
  }

  /** Whether several PVs that were added may have this PV's handle. */
  isShared(volume: Volume): boolean {
    return this.#shared.has(hashOfHandle(volume) ?? -1);
  }
}

/** The names of the PVs with the handles that a table found. */
export class SharedNames {
  /** By driver, then by handle. */
  readonly #names = new Map<string, Map<string, Set<string>>>();

  add(volume: Volume): void {
    const identity = identityOf(volume);
    if (identity === undefined) return;
    const { driver, id } = identity;
    const handles = this.#names.get(driver) ?? new Map<string, Set<string>>();
    this.#names.set(driver, handles);
    handles.set(id, (handles.get(id) ?? new Set<string>()).add(volume.metadata.name));
  }

  /** Whether this PV was added. */
  has(volume: Volume): boolean {
    const { driver = '', id = '' } = identityOf(volume) ?? {};
    return this.#names.get(driver)?.get(id)?.has(volume.metadata.name) === true;
  }

  /** A driver's handles with two names or more. */
  of(driver: string): HandleSharers {
    return new Map(
      [...(this.#names.get(driver) ?? [])]
        .filter(([, names]) => names.size > 1)
        .map(([id, names]) => [id, [...names]]),
    );
  }
}

function hashOfHandle(volume: Volume): number | undefined {
  const identity = identityOf(volume);
  return identity === undefined ? undefined : hashOf(`${identity.driver}/${identity.id}`);
}

/** 48 bits: among 100,000 PVs two different handles have the same hash once in 50,000 tables. */
function hashOf(text: string): number {
  return createHash('sha1').update(text).digest().readUIntBE(0, 6);
}

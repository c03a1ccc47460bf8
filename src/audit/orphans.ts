import type { VolumeIdentity } from '../volumes/handles.ts';
import { AZURE_FILE } from '../migration/azure-file.ts';
import { GCE } from '../migration/gce.ts';
import { VSPHERE } from '../migration/vsphere.ts';
import { RefusedError } from '../rules/rule.ts';

/** A volume in the driver's list. */
export interface ListedVolume {
  readonly handle: string;
  /** 0 if the driver does not say. */
  readonly sizeBytes: bigint;
}

/** A volume that no PV names. */
export interface Unnamed {
  readonly handle: string;
  readonly sizeBytes: bigint;
  /** When an audit first found the volume unnamed, Unix ms; the volume is at least that old. */
  readonly firstSeenMs: number;
  /** When it becomes an orphan, unless a PV names it before, Unix ms. */
  readonly countsFromMs: number;
}

/** Separates orphans from volumes that may still get a PV. An orphan was already unnamed in an
 * audit `minAgeMs` ago. The oldest come first.
 * @param o.unknown  volumes that no PV names now
 * @param o.seenBefore  when earlier audits first found a handle unnamed, Unix ms
 * @param o.minAgeMs  longer than the creation of a volume can take */
export function findOrphans(o: {
  readonly unknown: readonly ListedVolume[];
  readonly seenBefore: ReadonlyMap<string, number>;
  readonly nowMs: number;
  readonly minAgeMs: number;
}): { readonly orphans: readonly Unnamed[]; readonly notNamedYet: readonly Unnamed[] } {
  const { seenBefore, nowMs, minAgeMs } = o;
  const unnamed = o.unknown
    .map((volume): Unnamed => {
      const firstSeenMs = seenBefore.get(volume.handle) ?? nowMs;
      return { ...volume, firstSeenMs, countsFromMs: firstSeenMs + minAgeMs };
    })
    .sort((a, b) => a.firstSeenMs - b.firstSeenMs || (a.handle < b.handle ? -1 : 1));
  const isOrphan = ({ countsFromMs }: Unnamed): boolean => nowMs >= countsFromMs;
  return {
    orphans: unnamed.filter(isOrphan),
    notNamedYet: unnamed.filter((volume) => !isOrphan(volume)),
  };
}

/** The part of a volume's id that its CSI handle and its in-tree source share. It is coarser than
 * the handle, so that no volume in use looks like an orphan.
 * @throws RefusedError for an in-tree vSphere volume: its path does not contain the handle */
export function auditId({ driver, form, id }: VolumeIdentity): string {
  if (form === VSPHERE.source)
    throw new RefusedError(
      `some PersistentVolumes of ${driver} have the in-tree form, which does not contain the ` +
        'handle that the driver lists; audit again after the last of them is gone',
    );
  if (driver === GCE.csiDriver) return id.slice(id.lastIndexOf('/') + 1);
  // The name of the share is the third part of the handle and of the in-tree id.
  return driver === AZURE_FILE.csiDriver ? (id.split('#')[2] ?? id) : id;
}

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

/** A volume that no PV and no open record names. */
export interface Unnamed {
  readonly handle: string;
  readonly sizeBytes: bigint;
  /** When an audit first found no name for it, Unix ms; the volume is at least that old. */
  readonly firstSeenMs: number;
  /** From when on it counts as an orphan if it has no name by then, Unix ms. */
  readonly countsFromMs: number;
}

export interface AuditInput {
  /** Every volume of the driver. Listed before `known` is read, so that a volume that is created
   * meanwhile is not reported. */
  readonly volumes: readonly ListedVolume[];
  /** Audit ids of the volumes that PVs and open records name. */
  readonly known: ReadonlySet<string>;
  /** The audit id of a listed handle. */
  readonly idOf: (handle: string) => string;
  /** When earlier audits first found a handle unknown, Unix ms. */
  readonly seenBefore: ReadonlyMap<string, number>;
  readonly nowMs: number;
  /** For how long a volume has to be unknown before it counts as an orphan; longer than the
   * creation of a volume can take. */
  readonly minAgeMs: number;
}

export interface AuditResult {
  readonly orphans: readonly Unnamed[];
  /** Volumes that have been unknown for less than minAgeMs and may still get a PV; oldest first. */
  readonly notNamedYet: readonly Unnamed[];
  /** For the next audit's `seenBefore`. */
  readonly seen: ReadonlyMap<string, number>;
}

/** Finds the orphans: volumes that are unknown now and were unknown to an earlier audit too. It
 * deletes nothing. */
export function auditVolumes(input: AuditInput): AuditResult {
  const { nowMs, minAgeMs } = input;
  const unknown = input.volumes
    .filter(({ handle }) => !input.known.has(input.idOf(handle)))
    .map((volume) => {
      const firstSeenMs = input.seenBefore.get(volume.handle) ?? nowMs;
      return { ...volume, firstSeenMs, countsFromMs: firstSeenMs + minAgeMs };
    })
    .sort((a, b) => a.firstSeenMs - b.firstSeenMs || (a.handle < b.handle ? -1 : 1));
  const seen = new Map(unknown.map(({ handle, firstSeenMs }) => [handle, firstSeenMs] as const));
  const isOrphan = ({ countsFromMs }: Unnamed): boolean => nowMs >= countsFromMs;
  return {
    orphans: unknown.filter(isOrphan),
    notNamedYet: unknown.filter((volume) => !isOrphan(volume)),
    seen,
  };
}

/** The part of a volume's id that its CSI handle and its in-tree source share. It is coarser than
 * the handle, so that no volume in use is taken for an orphan.
 * @throws RefusedError for an in-tree vSphere volume: its path does not contain the handle */
export function auditId({ driver, form, id }: VolumeIdentity): string {
  if (form === VSPHERE.source)
    throw new RefusedError(
      `there are PersistentVolumes of the in-tree form of ${driver}, which name no handle that ` +
        'the driver lists; an audit is possible once there are none',
    );
  if (driver === GCE.csiDriver) return id.slice(id.lastIndexOf('/') + 1);
  // The share is the third part of the handle and of the in-tree id.
  return driver === AZURE_FILE.csiDriver ? (id.split('#')[2] ?? id) : id;
}

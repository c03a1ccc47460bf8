import type { VolumeIdentity } from './handles.ts';
import { AZURE_FILE, GCE, VSPHERE } from './migration/plugins.ts';
import { RefusedError } from './provisioning-options.ts';

/** A volume as the driver lists it. */
export interface ListedVolume {
  readonly handle: string;
  /** 0 where the driver does not say. */
  readonly sizeBytes: bigint;
}

/** A volume that nothing in the cluster names. */
export interface Orphan {
  readonly handle: string;
  readonly sizeBytes: bigint;
  /** When an audit first found it so, Unix ms; it is at least that old. */
  readonly firstSeenMs: number;
}

export interface AuditInput {
  /** Everything that the driver has; listed first, so that whatever is written meanwhile counts as
   * known. */
  readonly volumes: readonly ListedVolume[];
  /** Ids of the volumes that PVs or open records name; read afterwards. */
  readonly known: ReadonlySet<string>;
  /** The id of a listed handle. */
  readonly idOf: (handle: string) => string;
  /** When earlier audits first found a handle unknown. */
  readonly seenBefore: ReadonlyMap<string, number>;
  readonly nowMs: number;
  /** How long ago that must have been: longer than a volume can be under way. */
  readonly minAgeMs: number;
}

export interface AuditResult {
  readonly orphans: readonly Orphan[];
  /** Unknown for less than minAgeMs: volumes under way look like this. */
  readonly waiting: number;
  /** What the next audit has to remember. */
  readonly seen: ReadonlyMap<string, number>;
}

/** Volumes that nothing names, and did not name at an earlier audit either. Reports; deletes
 * nothing. */
export function auditVolumes(input: AuditInput): AuditResult {
  const { nowMs, minAgeMs } = input;
  const unknown = input.volumes
    .filter(({ handle }) => !input.known.has(input.idOf(handle)))
    .map((volume) => ({ ...volume, firstSeenMs: input.seenBefore.get(volume.handle) ?? nowMs }));
  const seen = new Map(unknown.map(({ handle, firstSeenMs }) => [handle, firstSeenMs] as const));
  const orphans = unknown
    .filter(({ firstSeenMs }) => nowMs - firstSeenMs >= minAgeMs)
    .sort((a, b) => a.firstSeenMs - b.firstSeenMs || (a.handle < b.handle ? -1 : 1));
  return { orphans, waiting: unknown.length - orphans.length, seen };
}

/** By what a volume is recognised in an audit: the part of its handle that its in-tree form has
 * too. Coarser than the handle, so that nothing in use looks like an orphan.
 * @throws RefusedError for an in-tree vSphere volume, whose path says nothing of its handle */
export function auditId({ driver, form, id }: VolumeIdentity): string {
  if (form === VSPHERE.source) {
    throw new RefusedError(
      `PersistentVolumes of the in-tree form of ${driver} can’t be told by the driver’s list: there is no audit as long as there are any`,
    );
  }
  if (driver === GCE.csiDriver) return id.slice(id.lastIndexOf('/') + 1);
  if (driver !== AZURE_FILE.csiDriver) return id;
  // rg#account#share#… in one form, [namespace, secret, share] in the other.
  return form === 'csi'
    ? (id.split('#')[2] ?? id)
    : String((JSON.parse(id) as readonly unknown[])[2]);
}

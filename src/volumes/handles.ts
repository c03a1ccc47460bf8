import { hash } from 'node:crypto';
import { zonesFromLabels } from '../migration/gce.ts';
import type { SourceField, VolumeParts } from '../migration/in-tree-plugin.ts';
import { findInTreeSource, translateHandle } from '../migration/plugins.ts';

/** The driver of a PV, stored in either form, and the handle for calls to it. The handle of an
 * in-tree PV also depends on labels and annotations, so it does not identify the volume; identityOf
 * does. Upstream: external-provisioner pkg/controller/controller.go Delete.
 * @returns undefined for a PV of no CSI driver
 * @throws RefusedError for an in-tree source without a CSI form */
export function handleOf(
  volume: VolumeParts,
): { readonly driver: string; readonly handle: string } | undefined {
  const { csi } = volume.spec;
  const own = csi && { driver: csi.driver, handle: csi.volumeHandle };
  return translateHandle(volume) ?? own;
}

/** Identifies a PV's volume among all volumes of its driver. */
export interface VolumeIdentity {
  readonly driver: string;
  readonly id: string;
  /** How the PV is stored. For some drivers one volume has different ids in the two forms. */
  readonly form: 'csi' | SourceField;
}

/** Identifies a PV's volume by its source alone: anyone who may edit PVs can change labels and
 * annotations.
 * @returns undefined for a PV of no CSI driver */
export function identityOf(volume: VolumeParts): VolumeIdentity | undefined {
  const { spec } = volume;
  if (spec.csi !== undefined)
    return { driver: spec.csi.driver, id: spec.csi.volumeHandle, form: 'csi' };
  const found = findInTreeSource(volume);
  if (found === undefined) return undefined;
  const { plugin, source } = found;
  const id = plugin.identify(source, spec.claimRef?.namespace ?? '');
  return id === '' ? undefined : { driver: plugin.csiDriver, id, form: plugin.source };
}

/** Whether two PVs may stand for one volume, so that deleting one would delete the other's data.
 * Names of GCE disks are unique only within a zone, and a deletion goes to the zone of its own PV:
 * if both PVs have zones and share none, their disks differ. */
export function mayBeSame(a: VolumeParts, b: VolumeParts): boolean {
  const one = identityOf(a);
  const other = identityOf(b);
  if (one === undefined || one.driver !== other?.driver || one.id !== other.id) return false;
  const isGce = a.spec.gcePersistentDisk !== undefined && b.spec.gcePersistentDisk !== undefined;
  const [zones, otherZones] = [zonesFromLabels(a), zonesFromLabels(b)];
  if (!isGce || zones.length === 0 || otherZones.length === 0) return true;
  return zones.some((zone) => otherZones.includes(zone));
}

/** Whether two PVs certainly stand for one volume. Never true for PVs in different forms, or
 * without a volume. */
export function isSameVolume(a: VolumeParts, b: VolumeParts): boolean {
  const one = identityOf(a);
  const other = identityOf(b);
  if (one === undefined || one.driver !== other?.driver) return false;
  return one.id === other.id && one.form === other.form;
}

/** 48 bits of a hash of a PV's volume. Among 100,000 volumes two have the same number by chance in
 * one of 50,000 cases, so equal numbers mean: compare the PVs. */
export function handleHash({ driver, id }: VolumeIdentity): number {
  return hash('sha1', `${driver}/${id}`, 'buffer').readUIntBE(0, 6);
}

import {
  AWS,
  AZURE_DISK,
  AZURE_FILE,
  CINDER,
  GCE,
  PORTWORX,
  VSPHERE,
} from './migration/plugins.ts';
import type { Plugin } from './migration/plugins.ts';
import { statedZones } from './migration/gce.ts';
import { isInTreeVolume, toCsiVolume } from './migration/volumes.ts';
import type { VolumeParts } from './migration/volume-parts.ts';

/** The handle that a driver gets for a PV, in whatever form that is stored (spec 07 §5). For a call
 * only: in-tree handles are made up of labels and annotations too.
 * @returns undefined where the PV stands for no volume that a CSI driver has
 * @throws RefusedError where an in-tree source names a volume that its driver can't have */
export function handleOf(
  volume: VolumeParts,
): { readonly driver: string; readonly handle: string } | undefined {
  const { csi } = isInTreeVolume(volume) ? toCsiVolume(volume).spec : volume.spec;
  return csi === undefined ? undefined : { driver: csi.driver, handle: csi.volumeHandle };
}

/** What tells a PV's volume from all others of its driver. */
export interface VolumeIdentity {
  readonly driver: string;
  readonly id: string;
  /** The same volume has another id in another form, for some drivers. */
  readonly form: 'csi' | Plugin['source'];
}

/** Which volume a PV stands for, from its source alone: labels and annotations anybody may edit.
 * @returns undefined where it stands for none */
export function identityOf({ spec }: VolumeParts): VolumeIdentity | undefined {
  const inTree = (
    { csiDriver: driver, source: form }: Plugin,
    id: string,
  ): VolumeIdentity | undefined => (id === '' ? undefined : { driver, id, form });
  if (spec.csi !== undefined)
    return { driver: spec.csi.driver, id: spec.csi.volumeHandle, form: 'csi' };
  if (spec.gcePersistentDisk !== undefined) return inTree(GCE, spec.gcePersistentDisk.pdName);
  // "aws://zone/vol-1" and "vol-1" are one volume.
  if (spec.awsElasticBlockStore !== undefined)
    return inTree(AWS, spec.awsElasticBlockStore.volumeID.replace(/^aws:.*\//, ''));
  if (spec.cinder !== undefined) return inTree(CINDER, spec.cinder.volumeID);
  if (spec.azureDisk !== undefined) return inTree(AZURE_DISK, spec.azureDisk.diskURI);
  if (spec.vsphereVolume !== undefined) return inTree(VSPHERE, spec.vsphereVolume.volumePath);
  if (spec.portworxVolume !== undefined) return inTree(PORTWORX, spec.portworxVolume.volumeID);
  if (spec.azureFile === undefined) return undefined;
  const { secretNamespace, secretName, shareName } = spec.azureFile;
  return inTree(
    AZURE_FILE,
    JSON.stringify([secretNamespace ?? spec.claimRef?.namespace ?? '', secretName, shareName]),
  );
}

/** Whether one volume may be behind two PVs, so that deleting for one would take the other's data.
 * Names of GCE's disks are unique in their zone only: the same name in zones that both PVs state is
 * another disk, and each deletion is sent to the zone of its own PV. */
export function mayBeSame(a: VolumeParts, b: VolumeParts): boolean {
  const one = identityOf(a);
  const other = identityOf(b);
  if (one === undefined || one.driver !== other?.driver || one.id !== other.id) return false;
  const [here, there] = [statedZones(a), statedZones(b)];
  const isGce = a.spec.gcePersistentDisk !== undefined && b.spec.gcePersistentDisk !== undefined;
  return (
    !isGce || here.length === 0 || there.length === 0 || here.some((zone) => there.includes(zone))
  );
}

/** Whether two PVs stand for one volume. `unclear`: they are stored in different forms, and neither
 * may be destroyed on that account. */
export function compareVolumes(a: VolumeParts, b: VolumeParts): 'same' | 'other' | 'unclear' {
  const one = identityOf(a);
  const other = identityOf(b);
  if (one === undefined || one.driver !== other?.driver || one.form !== other.form)
    return 'unclear';
  return one.id === other.id ? 'same' : 'other';
}

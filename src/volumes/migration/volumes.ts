import type { NewVolume, Volume } from '../../kube/objects.ts';
import { RefusedError } from '../provisioning-options.ts';
import { awsToCsi, awsToInTree } from './aws.ts';
import { azureDiskToCsi, azureDiskToInTree } from './azure-disk.ts';
import { azureFileToCsi, azureFileToInTree } from './azure-file.ts';
import { cinderToCsi, cinderToInTree } from './cinder.ts';
import { gceToCsi, gceToInTree } from './gce.ts';
import { AWS, AZURE_DISK, AZURE_FILE, CINDER, GCE, PLUGINS, PORTWORX, VSPHERE } from './plugins.ts';
import { portworxToCsi, portworxToInTree } from './portworx.ts';
import type { VolumeParts } from './volume-parts.ts';
import { vsphereToCsi, vsphereToInTree } from './vsphere.ts';

/** Whether a volume has an in-tree source that a CSI driver took over, whichever driver that is
 * (spec 07 §1). */
export function isInTreeVolume(volume: Pick<Volume, 'spec'>): boolean {
  return PLUGINS.some(({ source }) => volume.spec[source] !== undefined);
}

/** A stored in-tree volume as its CSI driver knows it, for the deletion (spec 07 §5). Only to be
 * read: what is stored stays in-tree.
 * @throws RefusedError where there is no in-tree source, or it names a volume that the driver can't
 *   have */
export function toCsiVolume<V extends VolumeParts>(volume: V): V {
  const {
    gcePersistentDisk,
    awsElasticBlockStore,
    cinder,
    azureDisk,
    azureFile,
    vsphereVolume,
    portworxVolume,
    ...spec
  } = volume.spec;
  const bare: V = { ...volume, spec };
  if (gcePersistentDisk !== undefined) return gceToCsi(bare, gcePersistentDisk);
  if (awsElasticBlockStore !== undefined) return awsToCsi(bare, awsElasticBlockStore);
  if (cinder !== undefined) return cinderToCsi(bare, cinder);
  if (azureDisk !== undefined) return azureDiskToCsi(bare, azureDisk);
  if (azureFile !== undefined) return azureFileToCsi(bare, azureFile);
  if (vsphereVolume !== undefined) return vsphereToCsi(bare, vsphereVolume);
  if (portworxVolume !== undefined) return portworxToCsi(bare, portworxVolume);
  throw new RefusedError(
    `could not find in-tree plugin translation logic for "${volume.metadata.name}"`,
  );
}

/** The new volume of a migrated class as it is stored: in-tree, so that a cluster without the
 * driver's migration can read it (spec 07 §6). What the in-tree source has no field for is lost:
 * attributes, secrets of the node.
 * @throws RefusedError for a driver that took over from nothing, and for a volume that the in-tree
 *   form can't express */
export function toInTreeVolume(volume: NewVolume): NewVolume {
  const { csi, ...spec } = volume.spec;
  if (csi === undefined) throw new RefusedError('CSI persistent volume was nil');
  const bare: NewVolume = { ...volume, spec };
  switch (csi.driver) {
    case GCE.csiDriver:
      return gceToInTree(bare, csi);
    case AWS.csiDriver:
      return awsToInTree(bare, csi);
    case CINDER.csiDriver:
      return cinderToInTree(bare, csi);
    case AZURE_DISK.csiDriver:
      return azureDiskToInTree(bare, csi);
    case AZURE_FILE.csiDriver:
      return azureFileToInTree(bare, csi);
    case VSPHERE.csiDriver:
      return vsphereToInTree(bare, csi);
    case PORTWORX.csiDriver:
      return portworxToInTree(bare, csi);
    default:
      throw new RefusedError(`could not find in-tree plugin translation logic for ${csi.driver}`);
  }
}

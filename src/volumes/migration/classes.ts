import type { Class } from '../../kube/objects.ts';
import { RefusedError } from '../provisioning-options.ts';
import { awsClass } from './aws.ts';
import { azureDiskClass } from './azure-disk.ts';
import { cinderClass } from './cinder.ts';
import { gceClass } from './gce.ts';
import { AWS, AZURE_DISK, AZURE_FILE, CINDER, GCE, PORTWORX, VSPHERE } from './plugins.ts';
import { portworxClass } from './portworx.ts';
import { isKnownToVsphere, vsphereClass } from './vsphere.ts';

/** An in-tree class as its CSI driver would have it (spec 07 §3): parameters and allowed
 * topologies. The provisioner stays the in-tree one, except for Portworx; what the new PV is
 * annotated with is the original class's in any case.
 * @throws RefusedError for a name that is no in-tree plug-in's, and for zones said twice */
export function translateClass(cls: Class, inTreeName: string): Class {
  switch (inTreeName) {
    case GCE.inTreeName:
      return gceClass(cls);
    case AWS.inTreeName:
      return awsClass(cls);
    case CINDER.inTreeName:
      return cinderClass(cls);
    case AZURE_DISK.inTreeName:
      return azureDiskClass(cls);
    case AZURE_FILE.inTreeName:
      return cls;
    case VSPHERE.inTreeName:
      return vsphereClass(cls);
    case PORTWORX.inTreeName:
      return portworxClass(cls);
    default:
      throw new RefusedError(
        `could not find in-tree storage class parameter translation logic for "${inTreeName}"`,
      );
  }
}

/** Parameters that translateClass leaves out because the driver has nothing like them; for the log.
 * Only vSphere has such. */
export function droppedParameters(cls: Class, inTreeName: string): readonly string[] {
  if (inTreeName !== VSPHERE.inTreeName) return [];
  return Object.keys(cls.parameters ?? {}).filter((key) => !isKnownToVsphere(key));
}

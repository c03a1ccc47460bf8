import type { Class } from '../kube/objects.ts';
import { RefusedError } from '../rules/refused-error.ts';
import { PLUGINS } from './plugins.ts';

/** A class of an in-tree plug-in with the parameters and allowed topologies of its CSI driver. The
 * provisioner stays the in-tree name, except for Portworx; the new PV is annotated with that of
 * the original class in any case. Upstream: csi-translation-lib translate.go
 * TranslateInTreeStorageClassToCSI.
 * @throws RefusedError for a class of no in-tree plug-in, and for zones that are given twice */
export function translateClass(cls: Class): Class {
  const plugin = PLUGINS.find(({ inTreeName }) => inTreeName === cls.provisioner);
  if (plugin !== undefined) return plugin.translateClass(cls);
  throw new RefusedError(
    `could not find in-tree storage class parameter translation logic for "${cls.provisioner}"`,
  );
}

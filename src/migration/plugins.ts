import type { Class, NewVolume } from '../kube/objects.ts';
import { RefusedError } from '../rules/rule.ts';
import { AWS } from './aws.ts';
import { AZURE_DISK } from './azure-disk.ts';
import { AZURE_FILE } from './azure-file.ts';
import { CINDER } from './cinder.ts';
import { GCE } from './gce.ts';
import type { InTreePlugin, VolumeParts } from './in-tree-plugin.ts';
import { PORTWORX } from './portworx.ts';
import { VSPHERE } from './vsphere.ts';

/** Every in-tree plug-in that a CSI driver replaced. */
export const PLUGINS: readonly InTreePlugin[] = [
  GCE,
  AWS,
  CINDER,
  AZURE_DISK,
  AZURE_FILE,
  VSPHERE,
  PORTWORX,
];

/** The in-tree plug-in that a CSI driver replaced, or undefined. */
export function inTreeNameOf(csiDriver: string): string | undefined {
  return PLUGINS.find((plugin) => plugin.csiDriver === csiDriver)?.inTreeName;
}

/** Translates a class of an in-tree plug-in for its CSI driver. The provisioner stays the in-tree
 * name, except for Portworx; the new PV's annotation always names the provisioner of the original
 * class. Upstream: csi-translation-lib translate.go TranslateInTreeStorageClassToCSI.
 * @throws RefusedError for a class of no in-tree plug-in, and for zones that are given twice */
export function translateClass(cls: Class): Class {
  const plugin = PLUGINS.find(({ inTreeName }) => inTreeName === cls.provisioner);
  if (plugin !== undefined) return plugin.translateClass(cls);
  throw new RefusedError(
    `could not find in-tree storage class parameter translation logic for "${cls.provisioner}"`,
  );
}

/** A PV's in-tree source and the plug-in of that source; undefined for a PV without one. */
export function findInTreeSource({ spec }: Pick<VolumeParts, 'spec'>) {
  const plugin = PLUGINS.find(({ source }) => spec[source] !== undefined);
  const source = plugin && spec[plugin.source];
  return plugin && source && { plugin, source };
}

/** Whether a volume has an in-tree source. Upstream: csi-translation-lib translate.go
 * IsPVMigratable. */
export function isInTreeVolume(volume: Pick<VolumeParts, 'spec'>): boolean {
  return findInTreeSource(volume) !== undefined;
}

/** The driver of a stored in-tree volume, and the handle for calls to it. The stored PV stays
 * in-tree. Upstream: csi-translation-lib translate.go TranslateInTreePVToCSI.
 * @returns undefined for a volume without an in-tree source
 * @throws RefusedError for a source without a CSI form */
export function translateHandle(volume: VolumeParts) {
  const found = findInTreeSource(volume);
  if (found === undefined) return undefined;
  const { plugin, source } = found;
  return { driver: plugin.csiDriver, handle: plugin.toHandle(source, volume) };
}

/** The in-tree form in which a migrated class's new volume is stored, so that a cluster without the
 * driver's migration can read it. Loses what the in-tree source has no field for, for example
 * volume attributes and the secrets of the node. Upstream: csi-translation-lib translate.go
 * TranslateCSIPVToInTree.
 * @throws RefusedError for a driver that replaced no plug-in, and for a volume that the in-tree
 *   source can't express */
export function toInTreeVolume(volume: NewVolume): NewVolume {
  const { csi, ...spec } = volume.spec;
  if (csi === undefined) throw new RefusedError('CSI persistent volume was nil');
  const plugin = PLUGINS.find(({ csiDriver }) => csiDriver === csi.driver);
  if (plugin === undefined)
    throw new RefusedError(`could not find in-tree plugin translation logic for ${csi.driver}`);
  const translated: NewVolume = {
    ...volume,
    spec: { ...spec, [plugin.source]: plugin.toInTreeSource(csi) },
  };
  return plugin.finishInTree?.(translated, csi) ?? translated;
}

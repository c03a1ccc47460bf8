import { AWS } from './aws.ts';
import { AZURE_DISK } from './azure-disk.ts';
import { AZURE_FILE } from './azure-file.ts';
import { CINDER } from './cinder.ts';
import { GCE } from './gce.ts';
import type { InTreePlugin } from './in-tree-plugin.ts';
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

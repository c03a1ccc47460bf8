/** A field of a PV's spec that holds an in-tree source. */
export type SourceField =
  | 'gcePersistentDisk'
  | 'awsElasticBlockStore'
  | 'cinder'
  | 'azureDisk'
  | 'azureFile'
  | 'vsphereVolume'
  | 'portworxVolume';

/** An in-tree plug-in, and the CSI driver that took over from it (spec 07 §2). */
export interface Plugin {
  /** What classes and the provisioner annotation of claims call it. */
  readonly inTreeName: string;
  readonly csiDriver: string;
  readonly source: SourceField;
  /** Key under which the driver knows zones; absent where it has no topology. */
  readonly zoneKey?: string;
  readonly regionKey?: string;
}

export const GCE = {
  inTreeName: 'kubernetes.io/gce-pd',
  csiDriver: 'pd.csi.storage.gke.io',
  source: 'gcePersistentDisk',
  zoneKey: 'topology.gke.io/zone',
} as const satisfies Plugin;

export const AWS = {
  inTreeName: 'kubernetes.io/aws-ebs',
  csiDriver: 'ebs.csi.aws.com',
  source: 'awsElasticBlockStore',
  zoneKey: 'topology.ebs.csi.aws.com/zone',
} as const satisfies Plugin;

export const CINDER = {
  inTreeName: 'kubernetes.io/cinder',
  csiDriver: 'cinder.csi.openstack.org',
  source: 'cinder',
  zoneKey: 'topology.cinder.csi.openstack.org/zone',
} as const satisfies Plugin;

export const AZURE_DISK = {
  inTreeName: 'kubernetes.io/azure-disk',
  csiDriver: 'disk.csi.azure.com',
  source: 'azureDisk',
  zoneKey: 'topology.disk.csi.azure.com/zone',
} as const satisfies Plugin;

export const AZURE_FILE = {
  inTreeName: 'kubernetes.io/azure-file',
  csiDriver: 'file.csi.azure.com',
  source: 'azureFile',
} as const satisfies Plugin;

export const VSPHERE = {
  inTreeName: 'kubernetes.io/vsphere-volume',
  csiDriver: 'csi.vsphere.vmware.com',
  source: 'vsphereVolume',
  zoneKey: 'topology.csi.vmware.com/zone',
  regionKey: 'topology.csi.vmware.com/region',
} as const satisfies Plugin;

export const PORTWORX = {
  inTreeName: 'kubernetes.io/portworx-volume',
  csiDriver: 'pxd.portworx.com',
  source: 'portworxVolume',
} as const satisfies Plugin;

export const PLUGINS: readonly Plugin[] = [
  GCE,
  AWS,
  CINDER,
  AZURE_DISK,
  AZURE_FILE,
  VSPHERE,
  PORTWORX,
];

/** The plug-in that a driver took over from, or undefined. */
export function inTreeNameOf(csiDriver: string): string | undefined {
  return PLUGINS.find((plugin) => plugin.csiDriver === csiDriver)?.inTreeName;
}

/** The driver that took over from a plug-in, or undefined. */
export function csiDriverOf(inTreeName: string): string | undefined {
  return PLUGINS.find((plugin) => plugin.inTreeName === inTreeName)?.csiDriver;
}

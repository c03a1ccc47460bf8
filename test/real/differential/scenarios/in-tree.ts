import { VOLUMES } from '../../../conformance/objects.ts';
import type { Fields } from '../../../conformance/connection.ts';
import type { Scene } from '../../../harness/differential/scene.ts';
import type { Scenario } from '../../../harness/differential/scenario.ts';

/** A driver that replaced an in-tree plug-in. */
export interface InTree {
  readonly driver: string;
  readonly inTree: string;
  /** A volume as the driver creates it. */
  readonly handle: (name: string) => string;
  readonly context?: (name: string) => Readonly<Record<string, string>>;
  /** The source of a volume that the plug-in created. */
  readonly source: (name: string) => Fields;
}

/** Its scenarios. */
export interface Migrated extends Pick<InTree, 'driver' | 'inTree'> {
  readonly scenarios: readonly Scenario[];
}

const diskURI = (name: string): string =>
  `/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/${name}`;

export const EBS: InTree = {
  driver: 'ebs.csi.aws.com',
  inTree: 'kubernetes.io/aws-ebs',
  handle: (name) => `vol-${name}`,
  source: (name) => ({
    awsElasticBlockStore: { volumeID: `aws://us-east-1a/vol-${name}`, fsType: 'xfs', partition: 3 },
  }),
};
export const PD: InTree = {
  driver: 'pd.csi.storage.gke.io',
  inTree: 'kubernetes.io/gce-pd',
  handle: (name) => `projects/p/zones/us-central1-a/disks/${name}`,
  source: (name) => ({ gcePersistentDisk: { pdName: name, fsType: 'xfs' } }),
};
export const AZURE_DISK: InTree = {
  driver: 'disk.csi.azure.com',
  inTree: 'kubernetes.io/azure-disk',
  handle: diskURI,
  source: (name) => ({
    azureDisk: { diskName: name, diskURI: diskURI(name), kind: 'Managed' },
  }),
};
export const CINDER: InTree = {
  driver: 'cinder.csi.openstack.org',
  inTree: 'kubernetes.io/cinder',
  handle: (name) => name,
  source: (name) => ({ cinder: { volumeID: name, fsType: 'xfs' } }),
};
export const VSPHERE: InTree = {
  driver: 'csi.vsphere.vmware.com',
  inTree: 'kubernetes.io/vsphere-volume',
  handle: (name) => name,
  context: (name) => ({ initialvolumefilepath: `[store] ${name}.vmdk` }),
  source: (name) => ({ vsphereVolume: { volumePath: `[store] ${name}.vmdk`, fsType: 'xfs' } }),
};

/** A claim that is Bound to a volume that the plug-in created, with these labels. */
export async function inTreeVolume(
  scene: Scene,
  { inTree, source }: InTree,
  labels: Readonly<Record<string, string>> = {},
): Promise<void> {
  const volumeName = `static-${scene.className}`;
  const annotations = { 'pv.kubernetes.io/provisioned-by': inTree };
  await scene.create(VOLUMES, {
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name: volumeName, labels, annotations },
    spec: {
      accessModes: ['ReadWriteOnce'],
      capacity: { storage: '1Gi' },
      storageClassName: scene.className,
      persistentVolumeReclaimPolicy: 'Delete',
      claimRef: { namespace: scene.namespace, name: 'data' },
      ...source(volumeName),
    },
  });
  await scene.makeClaim('data', { volumeName });
  await scene.untilBound();
  await scene.marker();
}

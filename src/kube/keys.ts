/** Annotations, labels and finalizers: the names by which the parts of Kubernetes find each other.
 * They are upstream's, so that a cluster can change over and back. */

// Annotations of claims.

/** Driver (or in-tree name) that shall provision. Written by kube-controller-manager; read by
 * ingest and jobs. */
export const STORAGE_PROVISIONER = 'volume.kubernetes.io/storage-provisioner';
/** The beta form, read where the GA key is absent. */
export const BETA_STORAGE_PROVISIONER = 'volume.beta.kubernetes.io/storage-provisioner';
/** Class name, before spec.storageClassName; also on volumes, for deletion secrets. Written by
 * users; read by ingest and jobs. */
export const BETA_STORAGE_CLASS = 'volume.beta.kubernetes.io/storage-class';
/** Node that the scheduler chose. Written by kube-scheduler, or by us with node deployment; removed
 * by us to ask for another node. */
export const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
/** Read where the key above is absent. */
export const ALPHA_SELECTED_NODE = 'volume.alpha.kubernetes.io/selected-node';

// Annotations of volumes, and of both.

/** class.provisioner of the volume's maker. Written by jobs; read by ingest (is it ours?),
 * kube-controller-manager. */
export const PROVISIONED_BY = 'pv.kubernetes.io/provisioned-by';
/** CSI driver that took over from an in-tree plugin, on claims and volumes. Written by
 * kube-controller-manager; read by ingest and jobs. */
export const MIGRATED_TO = 'pv.kubernetes.io/migrated-to';
/** Secret of DeleteVolume, empty for none. Written by jobs at creation, read by jobs at deletion.
 */
export const DELETION_SECRET_NAME = 'volume.kubernetes.io/provisioner-deletion-secret-name';
export const DELETION_SECRET_NAMESPACE =
  'volume.kubernetes.io/provisioner-deletion-secret-namespace';
/** Secret of ControllerModifyVolume. Written by jobs; read by external-resizer. */
export const MODIFY_SECRET_NAME = 'volume.kubernetes.io/controller-modify-secret-name';
export const MODIFY_SECRET_NAMESPACE = 'volume.kubernetes.io/controller-modify-secret-namespace';
/** On snapshot contents: the volume mode may change on restore. Written by administrators; read by
 * jobs. */
export const ALLOW_VOLUME_MODE_CHANGE = 'snapshot.storage.kubernetes.io/allow-volume-mode-change';
/** In-tree Portworx volumes: names the secret. Written by Portworx users; read by jobs. */
export const PORTWORX_SECRET_NAME = 'openstorage.io/auth-secret-name';
export const PORTWORX_SECRET_NAMESPACE = 'openstorage.io/auth-secret-namespace';
/** In-tree Azure file volumes: resource group of the account. Read and written by jobs. */
export const AZURE_FILE_RESOURCE_GROUP = 'kubernetes.io/azure-file-resource-group';
/** Class used where a claim names none. Read by the API server's admission and the dashboard. */
export const DEFAULT_CLASS = 'storageclass.kubernetes.io/is-default-class';

// Annotations of our own.

/** On classes: driver calls under way at once. Written by administrators; read by ingest. */
export const MAX_IN_FLIGHT = 'sutler.dev/max-in-flight';
/** On classes: driver calls per second. Written by administrators; read by ingest. */
export const MAX_PER_SECOND = 'sutler.dev/max-per-second';
/** On the driver's Lease: epoch of the Redis data (design §3 rule 6). Read and written by ingest
 * and jobs. */
export const EPOCH = 'sutler.dev/epoch';
/** Condition of claims that says why one is pending. Written by jobs where switched on. */
export const PROVISIONING_CONDITION = 'sutler.dev/Provisioning';

// Finalizers.

/** Keeps a volume until the driver's volume is gone. Added by jobs at creation and to Bound
 * volumes; removed by jobs. */
export const VOLUME_FINALIZER = 'external-provisioner.volume.kubernetes.io/finalizer';
/** Keeps a claim while its volume record is open, with --claim-finalizer. Added and removed by
 * jobs; swept by ingest; all removed by `sutler uninstall`. */
export const CLAIM_FINALIZER = 'sutler.dev/volume-record';
/** The API server's own, on each volume; removed by kube-controller-manager. */
export const PV_PROTECTION = 'kubernetes.io/pv-protection';
/** The API server's own, on each claim; removed by kube-controller-manager. */
export const PVC_PROTECTION = 'kubernetes.io/pvc-protection';
/** Keeps the source claim of a clone. Added by jobs; removed by ingest. */
export const CLONE_PROTECTION = 'provisioner.storage.kubernetes.io/cloning-protection';
/** Keeps the snapshot of a restore. Added and removed by jobs, swept by ingest. */
export const SNAPSHOT_SOURCE_PROTECTION =
  'provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection';

// Labels.

/** On CSIStorageCapacity: driver and the instance that owns the object. Read and written by ingest;
 * the scheduler reads neither. */
export const CAPACITY_DRIVER = 'csi.storage.k8s.io/drivername';
export const CAPACITY_MANAGED_BY = 'csi.storage.k8s.io/managed-by';
/** Zone and region of nodes and of migrated volumes. Written by the cloud; read by jobs and the
 * scheduler. */
export const ZONE = 'topology.kubernetes.io/zone';
export const REGION = 'topology.kubernetes.io/region';
export const BETA_ZONE = 'failure-domain.beta.kubernetes.io/zone';
export const BETA_REGION = 'failure-domain.beta.kubernetes.io/region';
/** On EndpointSlices: the Service. Written by kube-controller-manager; read by ingest to find
 * gateways. */
export const SERVICE_NAME = 'kubernetes.io/service-name';

// Keys inside objects.

/** Volume attribute that names the provisioner instance. Written by jobs; drivers may overwrite it.
 */
export const PROVISIONER_IDENTITY = 'storage.kubernetes.io/csiProvisionerIdentity';
/** Prefix of class parameters that are ours and never reach the driver. Written by administrators;
 * read by jobs. */
export const RESERVED_PARAMETER_PREFIX = 'csi.storage.k8s.io/';

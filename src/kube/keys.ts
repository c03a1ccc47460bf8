/** Names of annotations, labels, finalizers and attributes that sutler shares with other parts of
 * Kubernetes. Those without sutler.dev are upstream's, so a cluster can change back (invariant 9).
 */

// Annotations of claims.

/** Driver (or in-tree name) that is to provision the claim. Written by kube-controller-manager;
 * read by ingest and jobs. */
export const STORAGE_PROVISIONER = 'volume.kubernetes.io/storage-provisioner';
/** The beta form, read if the key above is absent. */
export const BETA_STORAGE_PROVISIONER = 'volume.beta.kubernetes.io/storage-provisioner';
/** Class name; takes precedence over spec.storageClassName. Also on volumes, for the secrets of
 * deletion. Written by users; read by ingest and jobs. */
export const BETA_STORAGE_CLASS = 'volume.beta.kubernetes.io/storage-class';
/** Node that the scheduler chose. Written by kube-scheduler; removed by jobs to ask for another
 * node. */
export const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
/** The alpha form, read if the key above is absent. */
export const ALPHA_SELECTED_NODE = 'volume.alpha.kubernetes.io/selected-node';

// Annotations of volumes and other objects.

/** Provisioner that made the volume, as its class names it. Written by jobs; read by
 * kube-controller-manager, and by ingest to find volumes of its driver. */
export const PROVISIONED_BY = 'pv.kubernetes.io/provisioned-by';
/** CSI driver that replaces an in-tree plug-in, on claims and volumes. Written by
 * kube-controller-manager; read by ingest and jobs. */
export const MIGRATED_TO = 'pv.kubernetes.io/migrated-to';
/** Secret of DeleteVolume; empty for none. Written by jobs at creation, read by jobs at deletion.
 */
export const DELETION_SECRET_NAME = 'volume.kubernetes.io/provisioner-deletion-secret-name';
export const DELETION_SECRET_NAMESPACE =
  'volume.kubernetes.io/provisioner-deletion-secret-namespace';
/** Secret of ControllerModifyVolume. Written by jobs; read by external-resizer. */
export const MODIFY_SECRET_NAME = 'volume.kubernetes.io/controller-modify-secret-name';
export const MODIFY_SECRET_NAMESPACE = 'volume.kubernetes.io/controller-modify-secret-namespace';
/** On snapshot contents: a restore may change the volume mode. Written by administrators; read by
 * jobs. */
export const ALLOW_VOLUME_MODE_CHANGE = 'snapshot.storage.kubernetes.io/allow-volume-mode-change';
/** Secret of an in-tree Portworx volume. Written by Portworx users; read by jobs. */
export const PORTWORX_SECRET_NAME = 'openstorage.io/auth-secret-name';
export const PORTWORX_SECRET_NAMESPACE = 'openstorage.io/auth-secret-namespace';
/** Resource group of the account of an in-tree Azure file volume. Read and written by jobs. */
export const AZURE_FILE_RESOURCE_GROUP = 'kubernetes.io/azure-file-resource-group';
/** sutler's own, on the driver's Lease: the history of Redis' data that the last leader knew, as
 * `<leaseTransitions>/<history>` (src/queue/history.ts). Written by ingest; jobs read it at a call.
 */
export const REDIS_HISTORY = 'sutler.dev/redis-history';
/** sutler's own, on the driver's Lease: who drains sutler, and since when, as JSON. Written by
 * `sutler drain`; read by ingest and jobs. */
export const DRAIN = 'sutler.dev/drain';

// sutler's own annotations of classes. Written by administrators; read by ingest and jobs
// (src/volumes/class-settings.ts).

/** Most volumes of the class that all workers together create, and delete, at once; 0 pauses it. */
export const MAX_IN_FLIGHT = 'sutler.dev/max-in-flight';
/** How long a creation may take before it counts as failing. */
export const CREATION_TIMEOUT = 'sutler.dev/creation-timeout';
export const CLASS_SETTINGS = [MAX_IN_FLIGHT, CREATION_TIMEOUT];

// Finalizers.

/** Keeps a volume object until the driver's volume is deleted. Added by jobs at creation and to
 * Bound volumes; removed by jobs. */
export const VOLUME_FINALIZER = 'external-provisioner.volume.kubernetes.io/finalizer';
/** Keeps the source claim of a clone. Added and removed by jobs. */
export const CLONE_PROTECTION = 'provisioner.storage.kubernetes.io/cloning-protection';
/** Keeps the source snapshot of a restore. Added and removed by jobs; ingest removes leftovers. */
export const SNAPSHOT_SOURCE_PROTECTION =
  'provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection';

// Labels.

/** On EndpointSlices: the Service whose pods they list. Written by Kubernetes; read by ingest and
 * jobs to find the gateways of nodes. */
export const SERVICE_NAME = 'kubernetes.io/service-name';

/** Zone and region of nodes and of migrated volumes. Written by the cloud provider; read by jobs
 * and the scheduler. */
export const ZONE = 'topology.kubernetes.io/zone';
export const REGION = 'topology.kubernetes.io/region';
export const BETA_ZONE = 'failure-domain.beta.kubernetes.io/zone';
export const BETA_REGION = 'failure-domain.beta.kubernetes.io/region';

// Keys inside objects.

/** Volume attribute that names the provisioner instance. Written by jobs; drivers may overwrite it.
 */
export const PROVISIONER_IDENTITY = 'storage.kubernetes.io/csiProvisionerIdentity';
/** Prefix of class parameters that upstream and sutler read themselves and never pass to the
 * driver. Written by administrators; read by jobs. */
export const RESERVED_PARAMETER_PREFIX = 'csi.storage.k8s.io/';

// Labels of CSIStorageCapacity objects, by which each provisioner finds its own. Written by jobs;
// ingest and jobs select by them.

/** Name of the driver. */
export const CAPACITY_DRIVER = 'csi.storage.k8s.io/drivername';
/** Which of the driver's provisioners manages the object. */
export const CAPACITY_MANAGED_BY = 'csi.storage.k8s.io/managed-by';

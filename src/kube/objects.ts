/** Slices of the API objects that we touch, as the wire has them. Fields that are missing here
 * survive, because foreign objects are only ever patched. */

export type Labels = Readonly<Record<string, string>>;

export interface OwnerReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
  readonly controller?: boolean;
  readonly blockOwnerDeletion?: boolean;
}

export interface ObjectMeta {
  readonly name: string;
  readonly namespace?: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** RFC 3339, whole seconds. */
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly generation?: number;
  readonly annotations?: Labels;
  readonly labels?: Labels;
  readonly finalizers?: readonly string[];
  readonly ownerReferences?: readonly OwnerReference[];
}

/** What every object has. */
export interface KubeObject {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: ObjectMeta;
}

/** Quantities by resource name, in Kubernetes notation. */
export interface ResourceList {
  readonly storage?: string;
  readonly [resource: string]: string | undefined;
}

export interface SecretReference {
  readonly name?: string;
  readonly namespace?: string;
}

export interface ObjectReference {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly namespace?: string;
  readonly name?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
}

export interface DataSource {
  readonly apiGroup?: string;
  readonly kind: string;
  readonly name: string;
}

export interface DataSourceRef extends DataSource {
  readonly namespace?: string;
}

export type VolumeMode = 'Filesystem' | 'Block';
export type ReclaimPolicy = 'Delete' | 'Retain' | 'Recycle';

export interface Condition {
  readonly type: string;
  readonly status: 'True' | 'False' | 'Unknown';
  readonly reason?: string;
  readonly message?: string;
  readonly lastProbeTime?: string | null;
  readonly lastTransitionTime?: string | null;
}

export interface ClaimSpec {
  readonly accessModes?: readonly string[];
  readonly resources?: { readonly requests?: ResourceList; readonly limits?: ResourceList };
  readonly storageClassName?: string;
  readonly volumeName?: string;
  readonly volumeMode?: VolumeMode;
  readonly selector?: LabelSelector;
  readonly dataSource?: DataSource;
  readonly dataSourceRef?: DataSourceRef;
  readonly volumeAttributesClassName?: string;
}

/** PersistentVolumeClaim. */
export interface Claim extends KubeObject {
  readonly spec: ClaimSpec;
  readonly status?: {
    readonly phase?: 'Pending' | 'Bound' | 'Lost';
    readonly capacity?: ResourceList;
    readonly accessModes?: readonly string[];
    readonly conditions?: readonly Condition[];
  };
}

export interface NodeSelectorRequirement {
  readonly key: string;
  readonly operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist' | 'Gt' | 'Lt';
  readonly values?: readonly string[];
}

export interface NodeSelectorTerm {
  readonly matchExpressions?: readonly NodeSelectorRequirement[];
  readonly matchFields?: readonly NodeSelectorRequirement[];
}

export interface CsiSource {
  readonly driver: string;
  readonly volumeHandle: string;
  readonly fsType?: string;
  readonly readOnly?: boolean;
  readonly volumeAttributes?: Labels;
  readonly controllerPublishSecretRef?: SecretReference;
  readonly nodeStageSecretRef?: SecretReference;
  readonly nodePublishSecretRef?: SecretReference;
  readonly controllerExpandSecretRef?: SecretReference;
  readonly nodeExpandSecretRef?: SecretReference;
}

/* The in-tree sources of volumes whose plug-in has a CSI driver now. */

export interface GcePersistentDiskSource {
  readonly pdName: string;
  readonly fsType?: string;
  readonly partition?: number;
  readonly readOnly?: boolean;
}

export interface AwsElasticBlockStoreSource {
  readonly volumeID: string;
  readonly fsType?: string;
  readonly partition?: number;
  readonly readOnly?: boolean;
}

export interface CinderSource {
  readonly volumeID: string;
  readonly fsType?: string;
  readonly readOnly?: boolean;
  readonly secretRef?: SecretReference;
}

export interface AzureDiskSource {
  readonly diskName: string;
  readonly diskURI: string;
  readonly cachingMode?: string;
  readonly fsType?: string;
  readonly kind?: string;
  readonly readOnly?: boolean;
}

export interface AzureFileSource {
  readonly secretName: string;
  readonly shareName: string;
  readonly readOnly?: boolean;
  /** The API server writes null, not nothing, where it isn't set. */
  readonly secretNamespace?: string | null;
}

export interface VsphereVolumeSource {
  readonly volumePath: string;
  readonly fsType?: string;
  readonly storagePolicyName?: string;
  readonly storagePolicyID?: string;
}

export interface PortworxVolumeSource {
  readonly volumeID: string;
  readonly fsType?: string;
  readonly readOnly?: boolean;
}

export interface VolumeSpec {
  readonly accessModes?: readonly string[];
  readonly capacity?: ResourceList;
  readonly claimRef?: ObjectReference;
  readonly csi?: CsiSource;
  readonly gcePersistentDisk?: GcePersistentDiskSource;
  readonly awsElasticBlockStore?: AwsElasticBlockStoreSource;
  readonly cinder?: CinderSource;
  readonly azureDisk?: AzureDiskSource;
  readonly azureFile?: AzureFileSource;
  readonly vsphereVolume?: VsphereVolumeSource;
  readonly portworxVolume?: PortworxVolumeSource;
  readonly mountOptions?: readonly string[];
  readonly nodeAffinity?: {
    readonly required?: { readonly nodeSelectorTerms: readonly NodeSelectorTerm[] };
  };
  readonly persistentVolumeReclaimPolicy?: ReclaimPolicy;
  readonly storageClassName?: string;
  readonly volumeMode?: VolumeMode;
  readonly volumeAttributesClassName?: string;
}

/** PersistentVolume. */
export interface Volume extends KubeObject {
  readonly spec: VolumeSpec;
  readonly status?: {
    readonly phase?: 'Pending' | 'Available' | 'Bound' | 'Released' | 'Failed';
    readonly message?: string;
    readonly reason?: string;
  };
}

/** A PersistentVolume that isn't stored yet: the server gives it uid and resourceVersion. */
export interface NewVolume {
  readonly apiVersion: 'v1';
  readonly kind: 'PersistentVolume';
  readonly metadata: Pick<ObjectMeta, 'name' | 'annotations' | 'labels' | 'finalizers'>;
  readonly spec: VolumeSpec;
}

export interface TopologySelectorTerm {
  readonly matchLabelExpressions?: readonly {
    readonly key: string;
    readonly values: readonly string[];
  }[];
}

/** StorageClass. */
export interface Class extends KubeObject {
  readonly provisioner: string;
  readonly parameters?: Labels;
  readonly mountOptions?: readonly string[];
  readonly reclaimPolicy?: ReclaimPolicy;
  readonly volumeBindingMode?: 'Immediate' | 'WaitForFirstConsumer';
  readonly allowVolumeExpansion?: boolean;
  readonly allowedTopologies?: readonly TopologySelectorTerm[];
}

/** Secret; the values are base64. Never kept longer than one call. */
export interface Secret extends KubeObject {
  readonly type?: string;
  readonly data?: Labels;
}

export interface LabelSelector {
  readonly matchLabels?: Labels;
  readonly matchExpressions?: readonly {
    readonly key: string;
    readonly operator: string;
    readonly values?: readonly string[];
  }[];
}

export interface LeaseSpec {
  readonly holderIdentity?: string;
  readonly leaseDurationSeconds?: number;
  /** Micro time: exactly six fraction digits, anything else is refused with 400. */
  readonly acquireTime?: string;
  /** Micro time, as above. */
  readonly renewTime?: string;
  readonly leaseTransitions?: number;
}

/** Lease of coordination.k8s.io. */
export interface Lease extends KubeObject {
  readonly spec?: LeaseSpec;
}

/** core/v1 Event. */
export interface Event {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: Pick<ObjectMeta, 'name' | 'namespace'> & Partial<ObjectMeta>;
  readonly involvedObject: ObjectReference;
  readonly type: 'Normal' | 'Warning';
  readonly reason: string;
  readonly message: string;
  readonly source?: { readonly component?: string; readonly host?: string };
  readonly firstTimestamp?: string | null;
  readonly lastTimestamp?: string | null;
  readonly eventTime?: string | null;
  readonly count?: number;
  readonly reportingComponent?: string;
  readonly reportingInstance?: string;
}

export interface Node extends KubeObject {
  readonly spec?: { readonly unschedulable?: boolean; readonly providerID?: string };
}

export interface CsiNode extends KubeObject {
  readonly spec: {
    readonly drivers?:
      | readonly {
          readonly name: string;
          readonly nodeID: string;
          readonly topologyKeys?: readonly string[] | null;
        }[]
      | null;
  };
}

export interface VolumeAttachment extends KubeObject {
  readonly spec: {
    readonly attacher: string;
    readonly nodeName: string;
    readonly source: { readonly persistentVolumeName?: string };
  };
  readonly status?: { readonly attached?: boolean };
}

export interface StorageCapacity extends KubeObject {
  readonly storageClassName: string;
  readonly capacity?: string;
  readonly maximumVolumeSize?: string;
  readonly nodeTopology?: LabelSelector;
}

export interface VolumeAttributesClass extends KubeObject {
  readonly driverName: string;
  readonly parameters?: Labels;
}

export interface Snapshot extends KubeObject {
  readonly spec: {
    readonly volumeSnapshotClassName?: string;
    readonly source?: {
      readonly persistentVolumeClaimName?: string;
      readonly volumeSnapshotContentName?: string;
    };
  };
  readonly status?: {
    readonly boundVolumeSnapshotContentName?: string;
    readonly readyToUse?: boolean;
    readonly restoreSize?: string;
  };
}

export interface SnapshotContent extends KubeObject {
  readonly spec: {
    readonly driver: string;
    readonly volumeSnapshotRef: ObjectReference;
    readonly sourceVolumeMode?: VolumeMode;
  };
  readonly status?: {
    readonly snapshotHandle?: string;
    readonly readyToUse?: boolean;
    readonly restoreSize?: number;
  };
}

export interface ReferenceGrant extends KubeObject {
  /** Absent where the definition is an early one, that demands nothing. */
  readonly spec?: Partial<ReferenceGrantSpec>;
}

export interface ReferenceGrantSpec {
  readonly from: readonly {
    readonly group: string;
    readonly kind: string;
    readonly namespace: string;
  }[];
  readonly to: readonly { readonly group: string; readonly kind: string; readonly name?: string }[];
}

/** The server's answer where it isn't an object: errors, some deletions. */
export interface Status {
  readonly kind: 'Status';
  readonly status?: 'Success' | 'Failure';
  readonly code?: number;
  readonly reason?: string;
  readonly message?: string;
  readonly details?: {
    readonly name?: string;
    readonly kind?: string;
    readonly uid?: string;
    readonly retryAfterSeconds?: number;
    readonly causes?: readonly {
      readonly reason?: string;
      readonly message?: string;
      readonly field?: string;
    }[];
  };
}

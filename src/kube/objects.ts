/** Objects of the API server as JSON. Types come from @kubernetes/client-node, which is not loaded
 * at run time. Kinds that it lacks are written here, with the fields that sutler reads. */
import type * as k8s from '@kubernetes/client-node';

/** A class of client-node as JSON: read-only at every depth, times as RFC 3339 text. */
type Json<T> = T extends Date
  ? string
  : T extends object
    ? { readonly [K in keyof T]: Json<T[K]> }
    : T;

/** T, with more exact types for some fields. */
type With<T, Known> = Omit<T, keyof Known> & Readonly<Known>;

/** Metadata of a stored object. The API server always sets the three required fields. */
export type ObjectMeta = With<
  Json<k8s.V1ObjectMeta>,
  { name: string; uid: string; resourceVersion: string }
>;

/** What every stored object has. */
export interface KubeObject {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: ObjectMeta;
}

/** A kind of client-node as stored by the API server. */
type Stored<T, Known = unknown> = With<Json<T>, { metadata: ObjectMeta } & Known>;

export type Labels = Readonly<Record<string, string>>;
export type VolumeMode = 'Filesystem' | 'Block';
export type ReclaimPolicy = 'Delete' | 'Retain' | 'Recycle';
export type ObjectReference = Json<k8s.V1ObjectReference>;

export type DataSource = Json<k8s.V1TypedLocalObjectReference>;
export type DataSourceRef = Json<k8s.V1TypedObjectReference>;
export type ClaimSpec = With<Json<k8s.V1PersistentVolumeClaimSpec>, { volumeMode?: VolumeMode }>;
type ClaimStatus = With<
  Json<k8s.V1PersistentVolumeClaimStatus>,
  { phase?: 'Pending' | 'Bound' | 'Lost' }
>;
/** PersistentVolumeClaim. */
export type Claim = Stored<k8s.V1PersistentVolumeClaim, { spec: ClaimSpec; status?: ClaimStatus }>;

export type NodeSelectorRequirement = Json<k8s.V1NodeSelectorRequirement>;
export type NodeSelectorTerm = Json<k8s.V1NodeSelectorTerm>;
export type CsiSource = Json<k8s.V1CSIPersistentVolumeSource>;
/** The API server writes null for a namespace that is not set. */
export type AzureFileSource = With<
  Json<k8s.V1AzureFilePersistentVolumeSource>,
  { secretNamespace?: string | null }
>;
export type VolumeSpec = With<
  Json<k8s.V1PersistentVolumeSpec>,
  {
    azureFile?: AzureFileSource;
    persistentVolumeReclaimPolicy?: ReclaimPolicy;
    volumeMode?: VolumeMode;
  }
>;
type VolumeStatus = With<
  Json<k8s.V1PersistentVolumeStatus>,
  { phase?: 'Pending' | 'Available' | 'Bound' | 'Released' | 'Failed' }
>;
/** PersistentVolume. */
export type Volume = Stored<k8s.V1PersistentVolume, { spec: VolumeSpec; status?: VolumeStatus }>;
/** A PersistentVolume before it is created: the API server sets uid and resourceVersion. */
export interface NewVolume {
  readonly apiVersion: 'v1';
  readonly kind: 'PersistentVolume';
  readonly metadata: Pick<ObjectMeta, 'name' | 'annotations' | 'labels' | 'finalizers'>;
  readonly spec: VolumeSpec;
}

export type TopologySelectorTerm = Json<k8s.V1TopologySelectorTerm>;
/** StorageClass. */
export type Class = Stored<
  k8s.V1StorageClass,
  { reclaimPolicy?: ReclaimPolicy; volumeBindingMode?: 'Immediate' | 'WaitForFirstConsumer' }
>;

/** Secret; the values are base64. Never kept longer than one call (invariant 11). */
export type Secret = Stored<k8s.V1Secret>;

/** Times must have exactly six fraction digits, or the API server answers 400. */
export type LeaseSpec = Json<k8s.V1LeaseSpec>;
/** Lease of coordination.k8s.io. */
export type Lease = Stored<k8s.V1Lease>;

/** EndpointSlice of discovery.k8s.io: where some of a Service's pods listen. */
export type EndpointSlice = Stored<k8s.V1EndpointSlice>;

/** core/v1 Event. */
export type Event = With<
  Json<k8s.CoreV1Event>,
  {
    metadata: Partial<ObjectMeta> & { readonly name: string };
    type: 'Normal' | 'Warning';
    reason: string;
    message: string;
    eventTime?: string | null;
  }
>;

export type CsiNode = Stored<k8s.V1CSINode>;
export type VolumeAttachment = Stored<k8s.V1VolumeAttachment>;
export type VolumeAttributesClass = Stored<k8s.V1VolumeAttributesClass>;

/** CSIStorageCapacity. */
export type StorageCapacity = Stored<k8s.V1CSIStorageCapacity>;
export type OwnerReference = Json<k8s.V1OwnerReference>;

/** VolumeSnapshot of snapshot.storage.k8s.io. */
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

/** VolumeSnapshotContent of snapshot.storage.k8s.io. */
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

/** ReferenceGrant of gateway.networking.k8s.io. */
export interface ReferenceGrant extends KubeObject {
  /** Absent if an early version of the CRD is installed, which requires no field. */
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

/** The API server's answer if it isn't an object: errors, some deletions. */
export type Status = With<Json<k8s.V1Status>, { kind: 'Status' }>;

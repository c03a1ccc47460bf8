/** Where the API server keeps a kind of object. */
export interface Resource {
  /** Empty for the core group. */
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly kind: string;
  readonly namespaced: boolean;
}

/** Names one object; `namespace` is absent for cluster-scoped ones. */
export interface ObjectRef {
  readonly namespace?: string;
  readonly name: string;
}

const inNamespace = (group: string, version: string, plural: string, kind: string): Resource => ({
  group,
  version,
  plural,
  kind,
  namespaced: true,
});
const inCluster = (group: string, version: string, plural: string, kind: string): Resource => ({
  group,
  version,
  plural,
  kind,
  namespaced: false,
});

export const claims = inNamespace('', 'v1', 'persistentvolumeclaims', 'PersistentVolumeClaim');
export const volumes = inCluster('', 'v1', 'persistentvolumes', 'PersistentVolume');
export const secrets = inNamespace('', 'v1', 'secrets', 'Secret');
export const events = inNamespace('', 'v1', 'events', 'Event');
export const nodes = inCluster('', 'v1', 'nodes', 'Node');
export const namespaces = inCluster('', 'v1', 'namespaces', 'Namespace');
export const pods = inNamespace('', 'v1', 'pods', 'Pod');
export const configMaps = inNamespace('', 'v1', 'configmaps', 'ConfigMap');
export const replicaSets = inNamespace('apps', 'v1', 'replicasets', 'ReplicaSet');
export const leases = inNamespace('coordination.k8s.io', 'v1', 'leases', 'Lease');
export const endpointSlices = inNamespace(
  'discovery.k8s.io',
  'v1',
  'endpointslices',
  'EndpointSlice',
);
export const classes = inCluster('storage.k8s.io', 'v1', 'storageclasses', 'StorageClass');
export const volumeAttachments = inCluster(
  'storage.k8s.io',
  'v1',
  'volumeattachments',
  'VolumeAttachment',
);
export const csiNodes = inCluster('storage.k8s.io', 'v1', 'csinodes', 'CSINode');
export const csiDrivers = inCluster('storage.k8s.io', 'v1', 'csidrivers', 'CSIDriver');
export const storageCapacities = inNamespace(
  'storage.k8s.io',
  'v1',
  'csistoragecapacities',
  'CSIStorageCapacity',
);
export const volumeAttributesClasses = inCluster(
  'storage.k8s.io',
  'v1',
  'volumeattributesclasses',
  'VolumeAttributesClass',
);
export const snapshots = inNamespace(
  'snapshot.storage.k8s.io',
  'v1',
  'volumesnapshots',
  'VolumeSnapshot',
);
export const snapshotContents = inCluster(
  'snapshot.storage.k8s.io',
  'v1',
  'volumesnapshotcontents',
  'VolumeSnapshotContent',
);
export const referenceGrants = inNamespace(
  'gateway.networking.k8s.io',
  'v1beta1',
  'referencegrants',
  'ReferenceGrant',
);
export const tokenReviews = inCluster('authentication.k8s.io', 'v1', 'tokenreviews', 'TokenReview');
export const subjectAccessReviews = inCluster(
  'authorization.k8s.io',
  'v1',
  'subjectaccessreviews',
  'SubjectAccessReview',
);

/** The `apiVersion` that objects of the resource carry: "v1", "storage.k8s.io/v1". */
export function apiVersionOf(resource: Resource): string {
  return resource.group === '' ? resource.version : `${resource.group}/${resource.version}`;
}

/** URL path from the server's root on; without a namespace: the collection over all namespaces. */
export function pathOf(
  resource: Resource,
  at: {
    readonly namespace?: string | undefined;
    readonly name?: string | undefined;
    readonly subresource?: string | undefined;
  } = {},
): string {
  const root =
    resource.group === ''
      ? `/api/${resource.version}`
      : `/apis/${resource.group}/${resource.version}`;
  const namespace =
    resource.namespaced && at.namespace !== undefined && at.namespace !== ''
      ? `/namespaces/${encodeURIComponent(at.namespace)}`
      : '';
  const name = at.name === undefined ? '' : `/${encodeURIComponent(at.name)}`;
  return `${root}${namespace}/${resource.plural}${name}${at.subresource === undefined ? '' : `/${at.subresource}`}`;
}

/** Key of an object in a store: "namespace/name", or "name" where there is no namespace. */
export function keyOf(ref: {
  readonly namespace?: string | undefined;
  readonly name: string;
}): string {
  return ref.namespace === undefined || ref.namespace === ''
    ? ref.name
    : `${ref.namespace}/${ref.name}`;
}

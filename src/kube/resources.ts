import { isFields } from '../runtime/json.ts';
import type { ObjectMeta } from './objects.ts';

/** Where the API server keeps a kind of object. */
export interface Resource {
  /** Empty for the core group. */
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly kind: string;
  readonly namespaced: boolean;
}

/** Names one object. Cluster-scoped objects have no `namespace`. */
export interface ObjectRef {
  readonly namespace?: string;
  readonly name: string;
}

/** Makes a field selector for the object of this name. Escapes characters that have a meaning in a
 * selector (apimachinery pkg/fields/selector.go EscapeValue), because users choose the names. */
export function selectName(name: string): string {
  return `metadata.name=${name.replaceAll(/[\\,=]/g, String.raw`\$&`)}`;
}

const storageApi = 'storage.k8s.io/v1';
const snapshotApi = 'snapshot.storage.k8s.io/v1';

export const claims = inNamespace('v1', 'persistentvolumeclaims', 'PersistentVolumeClaim');
export const volumes = inCluster('v1', 'persistentvolumes', 'PersistentVolume');
export const secrets = inNamespace('v1', 'secrets', 'Secret');
export const events = inNamespace('v1', 'events', 'Event');
export const nodes = inCluster('v1', 'nodes', 'Node');
export const namespaces = inCluster('v1', 'namespaces', 'Namespace');
export const leases = inNamespace('coordination.k8s.io/v1', 'leases', 'Lease');
export const endpointSlices = inNamespace('discovery.k8s.io/v1', 'endpointslices', 'EndpointSlice');
export const classes = inCluster(storageApi, 'storageclasses', 'StorageClass');
export const csiNodes = inCluster(storageApi, 'csinodes', 'CSINode');
export const volumeAttachments = inCluster(storageApi, 'volumeattachments', 'VolumeAttachment');
export const volumeAttributesClasses = inCluster(
  storageApi,
  'volumeattributesclasses',
  'VolumeAttributesClass',
);
export const storageCapacities = inNamespace(
  storageApi,
  'csistoragecapacities',
  'CSIStorageCapacity',
);
export const pods = inNamespace('v1', 'pods', 'Pod');
export const snapshots = inNamespace(snapshotApi, 'volumesnapshots', 'VolumeSnapshot');
export const snapshotContents = inCluster(
  snapshotApi,
  'volumesnapshotcontents',
  'VolumeSnapshotContent',
);
export const referenceGrants = inNamespace(
  'gateway.networking.k8s.io/v1beta1',
  'referencegrants',
  'ReferenceGrant',
);
function inNamespace(apiVersion: string, plural: string, kind: string): Resource {
  return { ...splitApiVersion(apiVersion), plural, kind, namespaced: true };
}

function inCluster(apiVersion: string, plural: string, kind: string): Resource {
  return { ...splitApiVersion(apiVersion), plural, kind, namespaced: false };
}

function splitApiVersion(apiVersion: string): Pick<Resource, 'group' | 'version'> {
  const [version = '', group = ''] = apiVersion.split('/').toReversed();
  return { group, version };
}

/** The `apiVersion` of the resource's objects: "v1", "storage.k8s.io/v1". */
export function apiVersionOf(resource: Resource): string {
  return resource.group === '' ? resource.version : `${resource.group}/${resource.version}`;
}

/** URL path below the server's root. Without a namespace: the collection over all namespaces. */
export function pathOf(
  { group, version, plural, namespaced }: Resource,
  at: {
    readonly namespace?: string | undefined;
    readonly name?: string | undefined;
    readonly subresource?: string | undefined;
  } = {},
): string {
  const root = group === '' ? `/api/${version}` : `/apis/${group}/${version}`;
  const namespace =
    namespaced && at.namespace ? `/namespaces/${encodeURIComponent(at.namespace)}` : '';
  const name = at.name === undefined ? '' : `/${encodeURIComponent(at.name)}`;
  const subresource = at.subresource === undefined ? '' : `/${at.subresource}`;
  return `${root}${namespace}/${plural}${name}${subresource}`;
}

/** Key of an object in a store: "namespace/name", or "name" for cluster-scoped objects. */
export function keyOf(ref: {
  readonly namespace?: string | undefined;
  readonly name: string;
}): string {
  return ref.namespace ? `${ref.namespace}/${ref.name}` : ref.name;
}

/** keyOf for an object. */
export function nameOf({ metadata }: { readonly metadata: Parameters<typeof keyOf>[0] }): string {
  return keyOf(metadata);
}

/** Metadata of an object as the API server sent it. */
export function metadataOf(raw: unknown): Partial<ObjectMeta> | undefined {
  const metadata = isFields(raw) ? raw['metadata'] : undefined;
  return isFields(metadata) ? metadata : undefined;
}

/** Key of an object as the API server sent it; undefined if it has no name. */
export function rawKey(raw: unknown): string | undefined {
  const { namespace, name } = metadataOf(raw) ?? {};
  return name === undefined ? undefined : keyOf({ namespace, name });
}

/** resourceVersion of an object as the API server sent it. */
export function versionOf(raw: unknown): string | undefined {
  return metadataOf(raw)?.resourceVersion;
}

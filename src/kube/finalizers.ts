import type { KubeClient } from './client.ts';
import type { KubeObject, ObjectMeta } from './objects.ts';
import { type Resource, volumes } from './resources.ts';

/* Adds finalizers of ours to objects and removes them, with the verbs that upstream's role
 * grants: by a patch of PVs, by an update of claims and snapshots. The API server refuses either
 * for another object that has the same name by now, and an update of an object that changed since
 * it was read. */

type Writer = Pick<KubeClient, 'patch' | 'update'>;

interface FinalizerTarget<T extends KubeObject> {
  readonly resource: Resource;
  /** As it was read from the API server, with all its fields. */
  readonly object: T;
  readonly finalizer: string;
}

// Keys of a strategic merge patch. With them it contains our finalizer only, so that no other one
// is lost. Upstream: sig-storage-lib-external-provisioner controller/controller.go addFinalizer,
// removeFinalizer, patchPersistentVolumeWithFinalizers.
const ORDER = '$setElementOrder/finalizers';
const REMOVED = '$deleteFromPrimitiveList/finalizers';

/** Whether an object has a finalizer. */
export function hasFinalizer(
  { metadata }: { readonly metadata: Pick<ObjectMeta, 'finalizers'> },
  finalizer: string,
): boolean {
  return metadata.finalizers?.includes(finalizer) === true;
}

/** Adds a finalizer at the end of the list. Sends nothing if the object has it already.
 * @returns the object as it is then
 * @throws KubeError: NotFound; Conflict or Invalid for another object of that name, for one that
 *   changed, and for one that is being deleted, since that takes no new finalizer */
export async function addFinalizer<T extends KubeObject>(
  kube: Writer,
  { resource, object, finalizer }: FinalizerTarget<T>,
): Promise<T> {
  if (hasFinalizer(object, finalizer)) return object;
  const { finalizers = [] } = object.metadata;
  const list = [...finalizers, finalizer];
  const order = finalizers.length === 0 ? {} : { [ORDER]: list };
  return write(kube, resource, object, { list, patch: { finalizers: [finalizer], ...order } });
}

/** Removes a finalizer and no other. Sends nothing if the object does not have it.
 * @returns the object as it is then
 * @throws KubeError as addFinalizer */
export async function removeFinalizer<T extends KubeObject>(
  kube: Writer,
  { resource, object, finalizer }: FinalizerTarget<T>,
): Promise<T> {
  if (!hasFinalizer(object, finalizer)) return object;
  const { finalizers = [], deletionTimestamp } = object.metadata;
  const list = finalizers.filter((other) => other !== finalizer);
  const order = list.length === 0 ? {} : { [ORDER]: list };
  // null also removes finalizers that were added since the object was read. That can't happen to an
  // object that is being deleted: the API server accepts no new finalizers for it.
  const isLast = list.length === 0 && deletionTimestamp !== undefined;
  const patch = isLast ? { finalizers: null } : { [REMOVED]: [finalizer], ...order };
  return write(kube, resource, object, { list, patch });
}

/** @param change.list   all finalizers
 * @param change.patch  what a strategic merge patch says of them */
async function write<T extends KubeObject>(
  kube: Writer,
  resource: Resource,
  object: T,
  change: { readonly list: readonly string[]; readonly patch: object },
): Promise<T> {
  const { namespace, name, uid } = object.metadata;
  const ref = namespace === undefined ? { name } : { namespace, name };
  if (resource === volumes) {
    const body = { metadata: { uid, ...change.patch } };
    return kube.patch<T>(resource, ref, { type: 'strategic', body });
  }
  const metadata = { ...object.metadata, finalizers: change.list };
  return kube.update<T>(resource, ref, { ...object, metadata });
}

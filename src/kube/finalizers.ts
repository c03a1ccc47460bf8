import type { KubeClient } from './client.ts';
import type { KubeObject, ObjectMeta } from './objects.ts';
import { type Resource, volumes } from './resources.ts';

/* Adds and removes sutler's finalizers with the verbs that upstream's role grants: patch for PVs,
 * update for claims and snapshots. The API server refuses both if another object has that name now,
 * and an update if the object has changed since it was read. */

type Writer = Pick<KubeClient, 'patch' | 'update'>;

interface FinalizerTarget<T extends KubeObject> {
  readonly resource: Resource;
  /** As it was read from the API server, with all its fields. */
  readonly object: T;
  readonly finalizer: string;
}

// Keys of a strategic merge patch. They let a patch name only our finalizer, so that no other one
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

/** Adds a finalizer at the end of the list. Sends nothing if the object already has it.
 * @returns the object after that
 * @throws KubeError: NotFound; Conflict or Invalid if another object has that name, or the object
 *   has changed or is being deleted (then it can't get new finalizers) */
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
 * @returns the object after that
 * @throws KubeError as addFinalizer */
export async function removeFinalizer<T extends KubeObject>(
  kube: Writer,
  { resource, object, finalizer }: FinalizerTarget<T>,
): Promise<T> {
  if (!hasFinalizer(object, finalizer)) return object;
  const { finalizers = [], deletionTimestamp } = object.metadata;
  const list = finalizers.filter((other) => other !== finalizer);
  const order = list.length === 0 ? {} : { [ORDER]: list };
  // null would also remove finalizers added since. An object that is being deleted gets none.
  const isLast = list.length === 0 && deletionTimestamp !== undefined;
  const patch = isLast ? { finalizers: null } : { [REMOVED]: [finalizer], ...order };
  return write(kube, resource, object, { list, patch });
}

/** @param change.list   all finalizers
 * @param change.patch  the same as fields of a strategic merge patch */
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

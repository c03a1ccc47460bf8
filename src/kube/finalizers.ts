import type { KubeClient } from './client.ts';
import * as lists from './finalizer-patches.ts';
import type { KubeObject } from './objects.ts';
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

/** Adds a finalizer at the end of the list. Sends nothing if the object has it already.
 * @returns the object as it is then
 * @throws KubeError: NotFound; Conflict or Invalid for another object of that name, for one that
 *   changed, and for one that is being deleted, since that takes no new finalizer */
export function addFinalizer<T extends KubeObject>(
  kube: Writer,
  target: FinalizerTarget<T>,
): Promise<T> {
  return write(kube, target, lists.addFinalizer);
}

/** Removes a finalizer and no other. Sends nothing if the object does not have it.
 * @returns the object as it is then
 * @throws KubeError as addFinalizer */
export function removeFinalizer<T extends KubeObject>(
  kube: Writer,
  target: FinalizerTarget<T>,
): Promise<T> {
  return write(kube, target, lists.removeFinalizer);
}

async function write<T extends KubeObject>(
  kube: Writer,
  { resource, object, finalizer }: FinalizerTarget<T>,
  changeList: typeof lists.addFinalizer,
): Promise<T> {
  const change = changeList(object.metadata, finalizer);
  if (change === undefined) return object;
  const { namespace, name, uid } = object.metadata;
  const ref = namespace === undefined ? { name } : { namespace, name };
  if (resource === volumes) {
    const body = { metadata: { uid, ...change.patch } };
    return kube.patch<T>(resource, ref, { type: 'strategic', body });
  }
  const metadata = { ...object.metadata, finalizers: change.list };
  return kube.update<T>(resource, ref, { ...object, metadata });
}

import type { KubeObject } from '../kube/objects.ts';
import type { Resource } from '../kube/resources.ts';
import * as lists from '../volumes/finalizer-patches.ts';
import type { ProcessorPorts } from './ports.ts';

/* Adds finalizers of ours to objects and removes them. Every patch names the object's UID: the API
 * server refuses it for another object that has the same name by now. */

/** One finalizer of one object. */
interface FinalizerTarget<T extends KubeObject> {
  readonly resource: Resource;
  /** As it was read. */
  readonly object: T;
  readonly finalizer: string;
  /** Whether the API server should refuse the patch if the object changed since it was read. It
   * always does for custom resources. */
  readonly mustBeUnchanged?: boolean;
}

/** Adds a finalizer at the end of the list. Sends nothing if the object has it already.
 * @returns the object as it is then
 * @throws KubeError: NotFound; Conflict or Invalid for another object of that name, for one that
 *   changed, and for one that is being deleted, since that takes no new finalizer */
export function addFinalizer<T extends KubeObject>(
  ports: Pick<ProcessorPorts, 'kube'>,
  target: FinalizerTarget<T>,
): Promise<T> {
  return patch(ports, target, lists.addFinalizer);
}

/** Removes a finalizer and no other. Sends nothing if the object does not have it.
 * @returns the object as it is then
 * @throws KubeError as addFinalizer */
export function removeFinalizer<T extends KubeObject>(
  ports: Pick<ProcessorPorts, 'kube'>,
  target: FinalizerTarget<T>,
): Promise<T> {
  return patch(ports, target, lists.removeFinalizer);
}

async function patch<T extends KubeObject>(
  { kube }: Pick<ProcessorPorts, 'kube'>,
  { resource, object, finalizer, mustBeUnchanged = false }: FinalizerTarget<T>,
  changeList: typeof lists.addFinalizer,
): Promise<T> {
  const change = changeList(object.metadata, finalizer);
  if (change === undefined) return object;
  const { namespace, name, uid, resourceVersion } = object.metadata;
  const ref = namespace === undefined ? { name } : { namespace, name };
  // Custom resources have no strategic merge patch, so the whole list is sent, on condition that
  // the object is unchanged. Of the built-in kinds only core ones (group '') get our finalizers.
  const isCustom = resource.group !== '';
  const metadata = {
    uid,
    ...(isCustom || mustBeUnchanged ? { resourceVersion } : {}),
    ...(isCustom ? { finalizers: change.list } : change.patch),
  };
  const type = isCustom ? 'merge' : 'strategic';
  return kube.patch<T>(resource, ref, { type, body: { metadata } });
}

import { VOLUME_FINALIZER } from '../kube/keys.ts';
import { isNotFound, isOutage, KubeError } from '../kube/kube-error.ts';
import type { KubeObject, Volume } from '../kube/objects.ts';
import { type Resource, volumes } from '../kube/resources.ts';
import type { Outcome } from '../queue/outcome.ts';
import * as lists from '../volumes/finalizer-patches.ts';
import type { Kube } from './dependencies.ts';

/* Adds finalizers of ours to objects and removes them, with the verbs that upstream's role
 * grants: by a patch of PVs, by an update of claims and snapshots. The API server refuses either
 * for another object that has the same name by now, and an update of an object that changed since
 * it was read. */

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
  kube: Kube,
  target: FinalizerTarget<T>,
): Promise<T> {
  return write(kube, target, lists.addFinalizer);
}

/** Removes a finalizer and no other. Sends nothing if the object does not have it.
 * @returns the object as it is then
 * @throws KubeError as addFinalizer */
export function removeFinalizer<T extends KubeObject>(
  kube: Kube,
  target: FinalizerTarget<T>,
): Promise<T> {
  return write(kube, target, lists.removeFinalizer);
}

async function write<T extends KubeObject>(
  kube: Kube,
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

/** Adds our finalizer to a PV, or removes it; it keeps the PV until the driver has deleted the
 * volume. A failure gets no event: users can do nothing about it. */
export async function setVolumeFinalizer(
  kube: Kube,
  volume: Volume,
  isWanted: boolean,
): Promise<Outcome> {
  const target = { resource: volumes, object: volume, finalizer: VOLUME_FINALIZER };
  try {
    await (isWanted ? addFinalizer(kube, target) : removeFinalizer(kube, target));
    return { kind: 'done', note: `the PV ${isWanted ? 'has' : 'does not have'} our finalizer` };
  } catch (error) {
    if (isNotFound(error)) return { kind: 'done', note: 'the volume is gone' };
    if (!(error instanceof KubeError)) throw error;
    const { name, finalizers = [] } = volume.metadata;
    const others = finalizers.filter((other) => other !== VOLUME_FINALIZER);
    const list = isWanted ? [...others, VOLUME_FINALIZER] : others;
    const change = `failed to modify finalizers to [${list.join(' ')}] on volume ${name}`;
    const reason = `${change} err: ${error.message}`;
    return { kind: isOutage(error) ? 'later' : 'retry', reason };
  }
}

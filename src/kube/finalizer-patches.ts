import type { ObjectMeta } from './objects.ts';

/** A change of an object's finalizers, as a strategic merge patch. Upstream:
 * sig-storage-lib-external-provisioner controller/controller.go addFinalizer, removeFinalizer,
 * patchPersistentVolumeWithFinalizers. */
export interface FinalizerChange {
  /** The finalizers after the change. */
  readonly list: readonly string[];
  /** The patch's `metadata`. It contains our finalizer only, so that no other one is lost. */
  readonly patch: Readonly<Record<string, unknown>>;
}

type Finalized = Pick<ObjectMeta, 'finalizers' | 'deletionTimestamp'>;

const ORDER = '$setElementOrder/finalizers';
const REMOVED = '$deleteFromPrimitiveList/finalizers';

/** Whether an object has a finalizer. */
export function hasFinalizer(
  { metadata }: { readonly metadata: Finalized },
  finalizer: string,
): boolean {
  return metadata.finalizers?.includes(finalizer) === true;
}

/** Adds a finalizer at the end.
 * @returns undefined if the object already has it */
export function addFinalizer(
  { finalizers = [] }: Finalized,
  finalizer: string,
): FinalizerChange | undefined {
  if (finalizers.includes(finalizer)) return undefined;
  const list = [...finalizers, finalizer];
  const order = finalizers.length === 0 ? {} : { [ORDER]: list };
  return { list, patch: { finalizers: [finalizer], ...order } };
}

/** Removes a finalizer.
 * @returns undefined if the object does not have it */
export function removeFinalizer(
  { finalizers = [], deletionTimestamp }: Finalized,
  finalizer: string,
): FinalizerChange | undefined {
  if (!finalizers.includes(finalizer)) return undefined;
  const list = finalizers.filter((other) => other !== finalizer);
  if (list.length > 0) return { list, patch: { [REMOVED]: [finalizer], [ORDER]: list } };
  // null also removes finalizers that were added since the object was read. That can't happen to an
  // object that is being deleted: the API server accepts no new finalizers for it.
  const patch = deletionTimestamp === undefined ? { [REMOVED]: [finalizer] } : { finalizers: null };
  return { list, patch };
}

import type { ObjectMeta } from '../kube/objects.ts';

/** A change of an object's finalizers. */
export interface FinalizerChange {
  /** The list as it is afterwards. */
  readonly list: readonly string[];
  /** What a strategic merge patch has under `metadata`: our element and no other, so that nobody
   * else's is lost. */
  readonly patch: Readonly<Record<string, unknown>>;
}

type Finalized = Pick<ObjectMeta, 'finalizers' | 'deletionTimestamp'>;

const ORDER = '$setElementOrder/finalizers';
const REMOVED = '$deleteFromPrimitiveList/finalizers';

/** Adds a finalizer at the end (spec 03 §4).
 * @returns undefined where it is there already */
export function addFinalizer(
  { finalizers = [] }: Finalized,
  finalizer: string,
): FinalizerChange | undefined {
  if (finalizers.includes(finalizer)) return undefined;
  const list = [...finalizers, finalizer];
  return {
    list,
    patch:
      finalizers.length === 0 ? { finalizers: list } : { finalizers: [finalizer], [ORDER]: list },
  };
}

/** Removes a finalizer (spec 03 §4).
 * @returns undefined where it is not there */
export function removeFinalizer(
  { finalizers = [], deletionTimestamp }: Finalized,
  finalizer: string,
): FinalizerChange | undefined {
  if (!finalizers.includes(finalizer)) return undefined;
  const list = finalizers.filter((other) => other !== finalizer);
  if (list.length > 0) return { list, patch: { [REMOVED]: [finalizer], [ORDER]: list } };
  // null takes along what somebody added since the list was read; nobody can add to an object that
  // is going away.
  return {
    list,
    patch: deletionTimestamp === undefined ? { [REMOVED]: [finalizer] } : { finalizers: null },
  };
}

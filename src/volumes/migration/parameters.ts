import { RESERVED_PARAMETER_PREFIX } from '../../kube/keys.ts';
import type { Labels } from '../../kube/objects.ts';

/** Values by lower-cased key. Where a key is there in several spellings the last in byte order
 * counts, which is the all-lower-case one: nothing must hang on the order in which they come. */
export function byLowerCase(given: Labels | undefined): ReadonlyMap<string, string> {
  const sorted = Object.entries(given ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return new Map(sorted.map(([key, value]) => [key.toLowerCase(), value]));
}

/** What is left without some keys, however spelled; the others keep their spelling. */
export function without(
  given: Labels | undefined,
  lowerCaseKeys: readonly string[],
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(given ?? {}).filter(([key]) => !lowerCaseKeys.includes(key.toLowerCase())),
  );
}

/** Class parameters with `fstype` under the key that CSI has for it. A class that names both has it
 * from `fstype`. */
export function renameFsType(given: Labels | undefined): Record<string, string> {
  const fsType = byLowerCase(given).get('fstype');
  return {
    ...without(given, ['fstype']),
    ...(fsType === undefined ? {} : { [`${RESERVED_PARAMETER_PREFIX}fstype`]: fsType }),
  };
}

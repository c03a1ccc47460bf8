import { RESERVED_PARAMETER_PREFIX } from '../kube/keys.ts';
import type { Class, Labels } from '../kube/objects.ts';
import { omitUnset } from '../runtime/json.ts';

/** Values by lower-cased key. If a key is there in several spellings, the last in byte order counts
 * (the one in lower case), so that the result does not depend on the order of the keys. */
export function indexByLowerCase(given: Labels | undefined): ReadonlyMap<string, string> {
  const sorted = Object.entries(given ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return new Map(sorted.map(([key, value]) => [key.toLowerCase(), value]));
}

/** Leaves out some keys in every spelling. */
export function omitKeys(given: Labels | undefined, ...lowerCaseKeys: string[]): Labels {
  return Object.fromEntries(
    Object.entries(given ?? {}).filter(([key]) => !lowerCaseKeys.includes(key.toLowerCase())),
  );
}

/** Moves the class parameter `fstype` to the key that CSI uses; it replaces a value that the class
 * already has there. */
export function renameFsType(cls: Class): Class {
  const fsType = indexByLowerCase(cls.parameters).get('fstype');
  const others = omitKeys(cls.parameters, 'fstype');
  const renamed = omitUnset({ [`${RESERVED_PARAMETER_PREFIX}fstype`]: fsType });
  return { ...cls, parameters: { ...others, ...renamed } };
}

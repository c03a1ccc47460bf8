import { RESERVED_PARAMETER_PREFIX } from '../kube/keys.ts';
import type { Class } from '../kube/objects.ts';
import { RefusedError } from './provisioning-options.ts';
import { RESERVED_SECRET_KEYS } from './secret-ref.ts';

const FS_TYPE = `${RESERVED_PARAMETER_PREFIX}fstype`;

/** File system of the class, the default where it names none (spec 02 §7.4).
 * @throws RefusedError where it is named twice */
export function fsTypeOf(cls: Class, defaultFsType: string): string {
  const named = Object.entries(cls.parameters ?? {}).filter(
    ([key]) => key.toLowerCase() === 'fstype' || key === FS_TYPE,
  );
  if (named.length > 1) {
    throw new RefusedError(
      `fstype specified in parameters with both "fstype" and "${FS_TYPE}" keys`,
    );
  }
  const fsType = named[0]?.[1] ?? '';
  return fsType === '' ? defaultFsType : fsType;
}

/** Class parameters without the reserved ones, which are ours and never reach the driver (spec 02
 * §7.9).
 * @throws RefusedError for a reserved key that nobody knows */
export function driverParameters(cls: Class): Record<string, string> {
  const kept: [string, string][] = [];
  for (const [key, value] of Object.entries(cls.parameters ?? {})) {
    if (!key.startsWith(RESERVED_PARAMETER_PREFIX)) kept.push([key, value]);
    else if (key !== FS_TYPE && !RESERVED_SECRET_KEYS.has(key)) {
      const text = `found unknown parameter key "${key}" with reserved namespace csi.storage.k8s.io/`;
      throw new RefusedError(`failed to strip CSI Parameters of prefixed keys: ${text}`);
    }
  }
  return Object.fromEntries(kept);
}

/** What --extra-create-metadata adds. */
export function metadataParameters(
  claim: { name: string; namespace: string },
  volume: string,
): Record<string, string> {
  return {
    [`${RESERVED_PARAMETER_PREFIX}pvc/name`]: claim.name,
    [`${RESERVED_PARAMETER_PREFIX}pvc/namespace`]: claim.namespace,
    [`${RESERVED_PARAMETER_PREFIX}pv/name`]: volume,
  };
}

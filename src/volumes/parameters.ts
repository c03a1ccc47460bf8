import { RESERVED_PARAMETER_PREFIX } from '../kube/keys.ts';
import type { Class } from '../kube/objects.ts';
import { RefusedError } from '../rules/refused-error.ts';
import { SECRET_KEYS } from './secret-ref.ts';

const FS_TYPE = `${RESERVED_PARAMETER_PREFIX}fstype`;

/** The file system that the class names, else the default. Upstream: external-provisioner
 * pkg/controller/controller.go prepareProvision.
 * @throws RefusedError for a class that names it twice */
export function fsTypeOf(cls: Class, defaultFsType: string): string {
  const named = Object.entries(cls.parameters ?? {}).filter(
    ([key]) => key.toLowerCase() === 'fstype' || key === FS_TYPE,
  );
  if (named.length > 1)
    throw new RefusedError(
      `fstype specified in parameters with both "fstype" and "${FS_TYPE}" keys`,
    );
  const fsType = named[0]?.[1] ?? '';
  return fsType === '' ? defaultFsType : fsType;
}

/** The class parameters for the driver: without the reserved ones, which are for the provisioner.
 * Upstream: external-provisioner pkg/controller/controller.go removePrefixedParameters.
 * @throws RefusedError for an unknown reserved key */
export function driverParameters(cls: Class): Record<string, string> {
  const kept: [string, string][] = [];
  for (const [key, value] of Object.entries(cls.parameters ?? {})) {
    if (!key.startsWith(RESERVED_PARAMETER_PREFIX)) kept.push([key, value]);
    else if (key !== FS_TYPE && !SECRET_KEYS.has(key)) {
      throw new RefusedError(
        'failed to strip CSI Parameters of prefixed keys: found unknown parameter key ' +
          `"${key}" with reserved namespace ${RESERVED_PARAMETER_PREFIX}`,
      );
    }
  }
  return Object.fromEntries(kept);
}

/** The parameters that --extra-create-metadata adds. */
export function metadataParameters(
  claim: { readonly name: string; readonly namespace: string },
  volumeName: string,
): Record<string, string> {
  return {
    [`${RESERVED_PARAMETER_PREFIX}pvc/name`]: claim.name,
    [`${RESERVED_PARAMETER_PREFIX}pvc/namespace`]: claim.namespace,
    [`${RESERVED_PARAMETER_PREFIX}pv/name`]: volumeName,
  };
}

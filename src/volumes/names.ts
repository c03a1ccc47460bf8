import type { ProvisioningOptions } from './provisioning-options.ts';
import { RefusedError } from '../rules/refused-error.ts';

/** The flags that decide how volumes are named. */
export type NamingOptions = Pick<ProvisioningOptions, 'volumeNamePrefix' | 'volumeNameUuidLength'>;

/** The name of a claim's volume: CSI name, PV name and `${pv.name}` in templates. Upstream:
 * external-provisioner pkg/controller/controller.go makeVolumeName.
 * @throws RefusedError for an empty prefix or a claim without UID */
export function volumeName(uid: string, options: NamingOptions): string {
  const { volumeNamePrefix: prefix, volumeNameUuidLength: length } = options;
  if (prefix === '') throw new RefusedError('volume name prefix cannot be of length 0');
  if (uid === '') throw new RefusedError('corrupted PVC object, it is missing UID');
  if (length === -1) return `${prefix}-${uid}`;
  return `${prefix}-${uid.replaceAll('-', '').slice(0, length)}`;
}

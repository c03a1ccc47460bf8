import { RefusedError } from './provisioning-options.ts';
import type { ProvisioningOptions } from './provisioning-options.ts';

/** The one name of a volume: CSI name, PV name and `${pv.name}` in templates (spec 02 §7.3).
 * @throws RefusedError for an empty prefix or a claim without UID */
export function volumeName(
  uid: string,
  options: Pick<ProvisioningOptions, 'volumeNamePrefix' | 'volumeNameUuidLength'>,
): string {
  if (options.volumeNamePrefix === '')
    throw new RefusedError('volume name prefix cannot be of length 0');
  if (uid === '') throw new RefusedError('corrupted PVC object, it is missing UID');
  if (options.volumeNameUuidLength === -1) return `${options.volumeNamePrefix}-${uid}`;
  return `${options.volumeNamePrefix}-${uid.replaceAll('-', '').slice(0, options.volumeNameUuidLength)}`;
}

import { Code } from '#src/csi/status.ts';
import { DriverStatus } from './driver-status.ts';

/** Parameter of a class: a key that the secrets of every call for its volumes or snapshots must
 * have. */
export const REQUIRE_SECRET_PARAMETER = 'requireSecret';

/** Checks that the secrets have the key, unless it is ''.
 * @throws DriverStatus InvalidArgument */
export function requireSecret(key: string, secrets: Readonly<Record<string, string>>): void {
  if (key === '') return;
  if (!Object.hasOwn(secrets, key))
    throw new DriverStatus(Code.InvalidArgument, `the secret must have the key ${key}`);
}

import { Code } from '#src/csi/status.ts';
import { DriverStatus } from './driver-status.ts';

/** Parameter of a class: the key that secrets of every call about its volumes, or snapshots, must
 * have. */
export const REQUIRE_SECRET_PARAMETER = 'requireSecret';

/** @throws DriverStatus InvalidArgument if the key isn't there; '' asks for none */
export function requireSecret(key: string, secrets: Readonly<Record<string, string>>): void {
  if (key === '') return;
  if (!Object.hasOwn(secrets, key))
    throw new DriverStatus(Code.InvalidArgument, `the secret must have the key ${key}`);
}

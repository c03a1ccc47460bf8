/** Prefix of sutler's identities as holder of a Lease. Upstream's identities are host names, which
 * can't contain '_'. */
export const IDENTITY_PREFIX = 'sutler_';

/** The holder if it is another provisioner.
 * @param holder  the identity that holds the Lease; undefined: none */
export function otherHolder(holder: string | undefined): string | undefined {
  return holder?.startsWith(IDENTITY_PREFIX) === true ? undefined : holder;
}

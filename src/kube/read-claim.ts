import type { KubeClient } from './client.ts';
import type { Claim } from './objects.ts';
import { claims } from './resources.ts';

/** Reads a claim.
 * @returns undefined if it is gone, even if another claim has its name now
 * @throws KubeError */
export async function readClaim(
  kube: Pick<KubeClient, 'get'>,
  { namespace = '', name, uid }: { namespace?: string; name: string; uid: string },
): Promise<Claim | undefined> {
  const claim = await kube.get<Claim>(claims, { namespace, name });
  return claim?.metadata.uid === uid ? claim : undefined;
}

import { listPages } from '../kube/client.ts';
import type { Claim } from '../kube/objects.ts';
import { claims } from '../kube/resources.ts';
import type { ProcessorPorts } from './ports.ts';

/** Reads a claim from the API server.
 * @returns undefined if it is gone, also if another claim has its name now
 * @throws KubeError */
export async function readClaim(
  { kube }: Pick<ProcessorPorts, 'kube'>,
  { namespace = '', name, uid }: { namespace?: string; name: string; uid: string },
): Promise<Claim | undefined> {
  const claim = await kube.get<Claim>(claims, { namespace, name });
  return claim?.metadata.uid === uid ? claim : undefined;
}

/** Lists claims until one matches.
 * @param namespace undefined = all namespaces
 * @throws KubeError */
export async function findClaim(
  { kube }: Pick<ProcessorPorts, 'kube'>,
  namespace: string | undefined,
  matches: (claim: Claim) => boolean,
): Promise<Claim | undefined> {
  for await (const page of listPages<Claim>(kube, claims, { namespace })) {
    const match = page.items.find(matches);
    if (match !== undefined) return match;
  }
  return undefined;
}

import type { Claim } from '../kube/objects.ts';
import { claims } from '../kube/resources.ts';
import type { ProcessorPorts } from './ports.ts';

/* Reads claims from the API server. */

/** Reads one claim.
 * @returns undefined if it is gone, also if another claim has its name now
 * @throws KubeError */
export async function readClaim(
  { kube }: Pick<ProcessorPorts, 'kube'>,
  { namespace = '', name, uid }: { namespace?: string; name: string; uid: string },
): Promise<Claim | undefined> {
  const claim = await kube.get<Claim>(claims, { namespace, name });
  return claim?.metadata.uid === uid ? claim : undefined;
}

/** Claims per list request; a page is dropped before the next one is read. */
const PAGE_SIZE = 500;

/** Lists claims until one matches.
 * @param namespace undefined = all namespaces
 * @throws KubeError */
export async function findClaim(
  { kube }: Pick<ProcessorPorts, 'kube'>,
  namespace: string | undefined,
  matches: (claim: Claim) => boolean,
): Promise<Claim | undefined> {
  let continueToken: string | undefined;
  do {
    const page = await kube.list<Claim>(claims, {
      limit: PAGE_SIZE,
      ...(namespace === undefined ? {} : { namespace }),
      ...(continueToken === undefined ? {} : { continueToken }),
    });
    const found = page.items.find(matches);
    if (found !== undefined) return found;
    continueToken = page.continueToken;
  } while (continueToken !== undefined);
  return undefined;
}

import type { Claim } from '../kube/objects.ts';
import { claims } from '../kube/resources.ts';
import type { ProcessorPorts } from './ports.ts';

/** A page of claims is read, looked through and dropped. */
const PAGE_SIZE = 500;

/** The first claim of a namespace (absent: of any) that is wanted, as the API server has it now;
 * undefined where there is none.
 * @throws KubeError */
export async function findClaim(
  { kube }: Pick<ProcessorPorts, 'kube'>,
  namespace: string | undefined,
  isWanted: (claim: Claim) => boolean,
): Promise<Claim | undefined> {
  let continueToken: string | undefined;
  do {
    const page = await kube.list<Claim>(claims, {
      limit: PAGE_SIZE,
      ...(namespace === undefined ? {} : { namespace }),
      ...(continueToken === undefined ? {} : { continueToken }),
    });
    const found = page.items.find(isWanted);
    if (found !== undefined) return found;
    continueToken = page.continueToken;
  } while (continueToken !== undefined);
  return undefined;
}

import { CLAIM_FINALIZER } from '../../kube/keys.ts';
import { isConflict, isInvalid, isNotFound } from '../../kube/kube-error.ts';
import type { Claim } from '../../kube/objects.ts';
import { claims } from '../../kube/resources.ts';
import type { ProcessorPorts } from '../ports.ts';

/* The belt beside the record: a finalizer on the claim while its record is open, so that even a
 * Redis that lost everything leaves the claim to start from. */

/** Whether the claim carries the belt. */
export function hasClaimFinalizer(claim: Claim | undefined): boolean {
  return claim?.metadata.finalizers?.includes(CLAIM_FINALIZER) === true;
}

/** Puts it on, before the record is opened.
 * @returns false when the claim is gone or another one has its name by now
 * @throws KubeError when the API server refuses for another reason */
export function addClaimFinalizer(
  ports: Pick<ProcessorPorts, 'kube'>,
  claim: Claim,
): Promise<boolean> {
  return patch(ports, claim, { finalizers: [CLAIM_FINALIZER] });
}

/** Takes it off, once nothing is open. */
export async function removeClaimFinalizer(
  ports: Pick<ProcessorPorts, 'kube'>,
  claim: Claim,
): Promise<void> {
  await patch(ports, claim, { '$deleteFromPrimitiveList/finalizers': [CLAIM_FINALIZER] });
}

async function patch(
  ports: Pick<ProcessorPorts, 'kube'>,
  { metadata }: Claim,
  change: Readonly<Record<string, unknown>>,
): Promise<boolean> {
  const { namespace, name, uid } = metadata;
  try {
    // The UID in the patch keeps it off a namesake.
    const body = { metadata: { uid, ...change } };
    await ports.kube.patch(
      claims,
      { name, ...(namespace === undefined ? {} : { namespace }) },
      { type: 'strategic', body },
    );
    return true;
  } catch (error) {
    // A claim that is being deleted takes no new finalizer, and another UID is refused: both say
    // that this one is past keeping.
    if (isNotFound(error) || isConflict(error) || isInvalid(error)) return false;
    throw error;
  }
}

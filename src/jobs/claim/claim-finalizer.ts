import { CLAIM_FINALIZER } from '../../kube/keys.ts';
import { isConflict, isInvalid, isNotFound } from '../../kube/kube-error.ts';
import type { Claim } from '../../kube/objects.ts';
import { claims } from '../../kube/resources.ts';
import { addFinalizer, hasFinalizer, removeFinalizer } from '../finalizers.ts';
import type { ProcessorPorts } from '../ports.ts';

/* With --claim-finalizer a claim keeps a finalizer while its volume record is open: if Redis loses
 * all records, every claim with a volume under way is still there to start from. */

/** Adds the finalizer, before the record is opened.
 * @returns the claim as it is then; undefined if it is gone, replaced, or being deleted without the
 *   finalizer
 * @throws KubeError for any other refusal */
export function addClaimFinalizer(
  ports: Pick<ProcessorPorts, 'kube'>,
  claim: Claim,
): Promise<Claim | undefined> {
  const target = { resource: claims, object: claim, finalizer: CLAIM_FINALIZER };
  return addFinalizer(ports, target).catch(ignoreGone);
}

/** Removes the finalizer unless the record is open. Sends nothing for a claim without it.
 * @throws KubeError, RecordsUnavailable */
export async function removeClaimFinalizer(
  ports: Pick<ProcessorPorts, 'kube' | 'records'>,
  claim: Claim,
): Promise<void> {
  const target = { resource: claims, object: claim, finalizer: CLAIM_FINALIZER };
  if (hasFinalizer(claim, CLAIM_FINALIZER) && !(await ports.records.isOpen(claim.metadata.uid)))
    await removeFinalizer(ports, target).catch(ignoreGone);
}

/** A claim that is gone or replaced needs no finalizer added or removed. */
function ignoreGone(error: unknown): undefined {
  if (!isNotFound(error) && !isConflict(error) && !isInvalid(error)) throw error;
}

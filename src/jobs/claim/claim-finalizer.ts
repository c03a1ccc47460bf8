import { CLAIM_FINALIZER } from '../../kube/keys.ts';
import { isConflict, isInvalid, isNotFound } from '../../kube/kube-error.ts';
import type { Claim } from '../../kube/objects.ts';
import { claims } from '../../kube/resources.ts';
import { hasFinalizer } from '../../volumes/finalizer-patches.ts';
import { addFinalizer, removeFinalizer } from '../finalizers.ts';
import type { ProcessorPorts } from '../ports.ts';

/* The finalizer that a claim has with --claim-finalizer while its volume record is open. If Redis
 * loses the record, the claim still exists, and its next run finishes the volume. */

const TARGET = { resource: claims, finalizer: CLAIM_FINALIZER };

/** Adds the finalizer, before the record is opened.
 * @returns the claim as it is then; undefined if it is gone, replaced, or being deleted without the
 *   finalizer
 * @throws KubeError for any other refusal */
export function addClaimFinalizer(
  ports: Pick<ProcessorPorts, 'kube'>,
  claim: Claim,
): Promise<Claim | undefined> {
  return addFinalizer(ports, { ...TARGET, object: claim }).catch(ignoreGone);
}

/** Removes the finalizer unless the record is open. Sends nothing for a claim without it.
 * @throws KubeError, RecordsUnavailable */
export async function removeClaimFinalizer(
  ports: Pick<ProcessorPorts, 'kube' | 'records'>,
  claim: Claim,
): Promise<void> {
  if (hasFinalizer(claim, CLAIM_FINALIZER) && !(await ports.records.isOpen(claim.metadata.uid)))
    await removeFinalizer(ports, { ...TARGET, object: claim }).catch(ignoreGone);
}

/** A claim that is gone or replaced needs no finalizer added or removed. */
function ignoreGone(error: unknown): undefined {
  if (!isNotFound(error) && !isConflict(error) && !isInvalid(error)) throw error;
}

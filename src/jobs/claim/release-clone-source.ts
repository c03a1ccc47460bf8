import { CLONE_PROTECTION } from '../../kube/keys.ts';
import { isConflict, isNotFound } from '../../kube/kube-error.ts';
import type { Claim } from '../../kube/objects.ts';
import { claims } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { isCloning, isTerminatingCloneSource } from '../../volumes/data-source.ts';
import { removeFinalizer } from '../finalizers.ts';
import type { ProcessorPorts } from '../ports.ts';
import { findClaim } from '../read-claims.ts';

/** Removes our finalizer from a claim that is being deleted and that clones were created from, once
 * no claim waits to be cloned from it and no volume is being created from it (external-provisioner
 * pkg/controller/clone_controller.go syncClaim).
 * @param claim as the run has read it
 * @returns undefined if the claim stays or lacks the finalizer, or if the driver does not clone
 * @throws KubeError, RecordsUnavailable */
export async function releaseCloneSource(
  ports: Pick<ProcessorPorts, 'kube' | 'driver' | 'openSources'>,
  claim: Claim,
): Promise<Outcome | undefined> {
  const canClone = ports.driver().controllerCapabilities.has('CLONE_VOLUME');
  if (!canClone || !isTerminatingCloneSource(claim)) return undefined;
  const { namespace = '', name, uid } = claim.metadata;
  // Claims before records: if a record is opened in between, its claim was still in the list.
  const clone = await findClaim(ports, namespace, (other) => isCloning(other, name));
  if (clone !== undefined) {
    const { name: cloneName, resourceVersion: seen } = clone.metadata;
    return {
      kind: 'parked',
      reason: `PVC '${cloneName}' is in 'Pending' state, cloning in progress`,
      until: [{ resource: claims.plural, namespace, name: cloneName, seen }],
    };
  }
  if ((await ports.openSources()).has(uid)) {
    const reason = 'a volume is being created from this claim’s; the claim of that volume is gone';
    return { kind: 'running', reason };
  }
  const target = { resource: claims, object: claim, finalizer: CLONE_PROTECTION };
  try {
    await removeFinalizer(ports, { ...target, mustBeUnchanged: true });
    return { kind: 'done', note: 'all clones are created: our finalizer is removed' };
  } catch (error) {
    if (isNotFound(error)) return { kind: 'done', note: 'the claim is gone' };
    if (!isConflict(error)) throw error;
    return { kind: 'later', reason: 'the claim changed meanwhile; it is read again' };
  }
}

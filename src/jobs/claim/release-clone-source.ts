import { CLONE_PROTECTION } from '../../kube/keys.ts';
import { isConflict, isNotFound } from '../../kube/kube-error.ts';
import type { Claim } from '../../kube/objects.ts';
import { claims } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { removeFinalizer } from '../../volumes/finalizers.ts';
import { isCloning, isTerminatingCloneSource } from '../../volumes/source-use.ts';
import { findClaim } from '../find-claim.ts';
import type { ProcessorPorts } from '../ports.ts';

/** Lets a claim go that is being deleted and that clones were made from, once no claim waits to be
 * cloned from it and no volume is being made from it (spec 04 D).
 * @param claim  as the run has read it
 * @returns undefined where nothing holds it for us, or the driver does not clone
 * @throws KubeError, RecordsUnavailable */
export async function releaseCloneSource(
  ports: Pick<ProcessorPorts, 'kube' | 'driver' | 'openSources'>,
  claim: Claim,
): Promise<Outcome | undefined> {
  if (!isTerminatingCloneSource(claim) || !ports.driver().controllerCapabilities.has('CLONE_VOLUME'))
    return undefined;
  const { namespace = '', name, uid } = claim.metadata;
  // Claims before records: one that opens a record in between was still there when we listed.
  const clone = await findClaim(ports, namespace, (other) => isCloning(other, name));
  if (clone !== undefined) {
    return {
      kind: 'parked',
      reason: `PVC '${clone.metadata.name}' is in 'Pending' state, cloning in progress`,
      until: [
        {
          resource: claims.plural,
          namespace,
          name: clone.metadata.name,
          seen: clone.metadata.resourceVersion,
        },
      ],
    };
  }
  if ((await ports.openSources()).has(uid)) {
    return {
      kind: 'running',
      reason: 'a volume is being made from this claim’s; the claim of that volume is gone',
    };
  }
  return removeCloneProtection(ports, claim);
}

/** The patch names what was read, so that it changes neither a namesake nor a claim that has
 * changed since. */
async function removeCloneProtection(
  { kube }: Pick<ProcessorPorts, 'kube'>,
  { metadata }: Claim,
): Promise<Outcome> {
  const { namespace = '', name, uid, resourceVersion } = metadata;
  const body = {
    metadata: { uid, resourceVersion, ...removeFinalizer(metadata, CLONE_PROTECTION)?.patch },
  };
  try {
    await kube.patch(claims, { namespace, name }, { type: 'strategic', body });
  } catch (error) {
    if (isNotFound(error)) return { kind: 'done', note: 'the claim is gone' };
    if (isConflict(error))
      return { kind: 'later', reason: 'the claim changed meanwhile; looking again' };
    throw error;
  }
  return { kind: 'done', note: 'clones are made: the claim is let go' };
}

import { SELECTED_NODE } from '../../kube/keys.ts';
import { KubeError } from '../../kube/kube-error.ts';
import type { Claim } from '../../kube/objects.ts';
import { claims } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { selectedNodeOf } from '../../volumes/eligibility.ts';
import { supportsTopology } from '../../volumes/driver-facts.ts';
import type { ProcessorPorts } from '../ports.ts';

/** Asks the scheduler for another node by removing the selected node from a claim whose volume
 * can't be created for it (sig-storage-lib-external-provisioner controller/controller.go
 * rescheduleProvisioning).
 * @returns undefined if the claim has no selected node, or it could not be removed */
export async function requestReschedule(
  ports: ProcessorPorts,
  claim: Claim,
): Promise<Outcome | undefined> {
  const mayReschedule =
    supportsTopology(ports.driver(), ports.options.gates) && selectedNodeOf(claim) !== '';
  if (!mayReschedule || claim.metadata.annotations?.[SELECTED_NODE] === undefined) return undefined;
  const { namespace = '', name, uid, resourceVersion } = claim.metadata;
  try {
    const body = { metadata: { uid, resourceVersion, annotations: { [SELECTED_NODE]: null } } };
    await ports.kube.patch(claims, { namespace, name }, { type: 'merge', body });
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    ports.log.warn(
      { claim: `${namespace}/${name}`, err: error },
      'could not remove the selected node from the claim; the next run tries again',
    );
    return undefined;
  }
  return { kind: 'done', note: 'the scheduler is asked for another node', needsNode: true };
}

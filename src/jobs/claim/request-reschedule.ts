import { SELECTED_NODE } from '../../kube/keys.ts';
import { KubeError } from '../../kube/kube-error.ts';
import type { Claim } from '../../kube/objects.ts';
import { claims } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { selectedNodeOf } from '../../volumes/eligibility.ts';
import { supportsTopology } from '../../volumes/driver-facts.ts';
import type { ProcessorPorts } from '../ports.ts';

/** Takes the selected node off a claim whose volume does not fit there, so that the scheduler looks
 * for another one (spec 02 §5 step 9c, §8.1).
 * @returns undefined where there is no node to give back */
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
      'the selected node could not be taken off the claim; tried again',
    );
    return undefined;
  }
  return { kind: 'done', note: 'the scheduler is asked for another node' };
}

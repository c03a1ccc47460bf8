import type { Claim, Class } from '../../kube/objects.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import { supportsTopology } from '../../volumes/driver-facts.ts';
import { judgeClaim } from '../../volumes/eligibility.ts';
import { planVolume, type VolumePlan } from '../../volumes/plan.ts';
import { type PlanClaim, planOnNode } from '../node-local/plan-on-node.ts';
import type { ProcessorPorts } from '../ports.ts';
import { runRule } from '../run-rule.ts';
import { findNameClash } from './name-clash.ts';

/** What a run does with its claim if no record is open. */
export type Intent =
  /** Create the volume by this request. */
  | {
      readonly kind: 'create';
      readonly planned: VolumeRequest;
      /** The claim, if planning has changed it. */
      readonly claim?: Claim;
    }
  /** Nothing: the claim is gone, bound, or another provisioner's. */
  | { readonly kind: 'none'; readonly reason: string }
  /** End with this outcome. `message`: for the user, if there is something to tell. */
  | { readonly kind: 'wait'; readonly outcome: Outcome; readonly message?: string }
  /** Wait for the claim's class. */
  | { readonly kind: 'no-class'; readonly className: string }
  /** Leave the claim to a volume populator, ask the scheduler for another node, or tell the user
   * why no volume can be created now. */
  | Exclude<VolumePlan, { kind: 'create' }>;

/** Decides what to do with a claim: whether it is ours (src/volumes/eligibility.ts), and the
 * request for its volume (src/volumes/plan.ts). The texts of refusals come from src/volumes/, those
 * of clones from clone-source.ts there, those of restores from snapshot-source.ts.
 * @throws KubeError if the API server can't be asked */
export async function decideIntent(
  ports: ProcessorPorts,
  claim: Claim | undefined,
): Promise<Intent> {
  if (claim === undefined) return { kind: 'none', reason: 'the claim is gone' };
  const driver = ports.driver();
  const verdict = judgeClaim(claim, driver, ports.classOf);
  if (verdict.kind === 'ignore') return { kind: 'none', reason: verdict.reason };
  if (verdict.kind === 'no-class') return verdict;
  const { cls, className } = verdict;
  const plan: PlanClaim = (planned, planPorts) => planClaim(planPorts, planned, cls, className);
  return ports.nodeLocal === undefined
    ? plan(claim, ports)
    : planOnNode(ports, ports.nodeLocal, { claim, cls }, plan);
}

async function planClaim(
  ports: ProcessorPorts,
  claim: Claim,
  cls: Class,
  className: string,
): Promise<Intent> {
  const { options } = ports;
  const driver = ports.driver();
  const topology = supportsTopology(driver, options.gates) ? ports.topology() : undefined;
  const plan = await runRule(
    ports,
    planVolume({ claim, cls, className, driver, options, topology }),
  );
  if (plan.kind !== 'create') return plan;
  const clash = await findNameClash(ports, claim);
  if (clash !== undefined) return { kind: 'refuse', message: clash, waitsFor: [] };
  const { request, skeleton, secret } = plan;
  return { kind: 'create', planned: { request, skeleton, secret, endpoint: ports.endpoint } };
}

import type { Claim, Class } from '../../kube/objects.ts';
import { shouldProvision } from '../../volumes/eligibility.ts';
import { planVolume } from '../../volumes/plan.ts';
import { type PlanClaim, planOnNode } from './plan-on-node.ts';
import type { ProcessorPorts } from '../ports.ts';
import { runRule } from '../run-rule.ts';
import { topologyOf } from '../driver-topology.ts';
import type { Intent } from './intent.ts';
import { findNameClash } from './name-clash.ts';

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
  const verdict = shouldProvision(claim, driver, ports.classOf);
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
  const topology = topologyOf(ports);
  const plan = await runRule(
    ports,
    planVolume({ claim, cls, className, driver, options, topology }),
  );
  if (plan.kind !== 'create') return plan;
  const clash = await findNameClash(ports, claim);
  if (clash !== undefined) return { kind: 'refuse', message: clash, waitsFor: [] };
  const { request, pvTemplate, secret } = plan;
  return { kind: 'create', planned: { request, pvTemplate, secret, endpoint: ports.endpoint } };
}

import type { Claim, Class } from '../../kube/objects.ts';
import { shouldProvision } from '../../volumes/eligibility.ts';
import { planVolume } from '../../volumes/plan.ts';
import type { Dependencies } from '../dependencies.ts';
import { runRule } from '../read-objects.ts';
import type { Intent } from './intent.ts';
import { findNameClash } from './name-clash.ts';
import { type PlanClaim, planOnNode } from './plan-on-node.ts';

/** Decides what to do with a claim: whether it is ours (src/volumes/eligibility.ts), and the
 * request for its volume (src/volumes/plan.ts). The texts of refusals come from src/volumes/, those
 * of clones from clone-source.ts there, those of restores from snapshot-source.ts.
 * @throws KubeError if the API server can't be asked */
export async function decideIntent(deps: Dependencies, claim: Claim | undefined): Promise<Intent> {
  if (claim === undefined) return { kind: 'none', reason: 'the claim is gone' };
  const { cluster, driver } = deps;
  const verdict = shouldProvision(claim, driver.facts(), cluster.classOf);
  if (verdict.kind === 'ignore') return { kind: 'none', reason: verdict.reason };
  if (verdict.kind === 'no-class') return verdict;
  const { cls, className } = verdict;
  const plan: PlanClaim = (planned, planDeps) => planClaim(planDeps, planned, cls, className);
  return driver.nodeLocal === undefined
    ? plan(claim, deps)
    : planOnNode(deps, driver.nodeLocal, { claim, cls }, plan);
}

async function planClaim(
  { cluster, driver, redis, settings: { options } }: Dependencies,
  claim: Claim,
  cls: Class,
  className: string,
): Promise<Intent> {
  const facts = driver.facts();
  const topology = cluster.topology();
  const rule = planVolume({ claim, cls, className, driver: facts, options, topology });
  const plan = await runRule(cluster.kube, rule);
  if (plan.kind !== 'create') return plan;
  const clash = await findNameClash(cluster.kube, redis.names, options, claim.metadata.uid);
  if (clash !== undefined) return { kind: 'refuse', message: clash, waitsFor: [] };
  const { request, pvTemplate, secret } = plan;
  return { kind: 'create', planned: { request, pvTemplate, secret, endpoint: driver.endpoint } };
}

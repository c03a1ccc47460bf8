import { VANISHED } from '../../explain/causes.ts';
import type { Begun } from '../../queue/run.ts';
import { readEntryOf } from '../../journal/list-journal.ts';
import { SELECTED_NODE } from '../../kube/keys.ts';
import { KubeError } from '../../kube/kube-error.ts';
import type { Claim } from '../../kube/objects.ts';
import { claims, classes } from '../../kube/resources.ts';
import { type JobKey, logFields } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { WaitCondition } from '../../rules/rule.ts';
import { parseRequirement } from '../../topology/parse-requirement.ts';
import type { TopologyRequirement } from '../../topology/requirement.ts';
import { supportsTopology } from '../../volumes/driver-facts.ts';
import { classNameOf, selectedNodeOf, shouldProvision } from '../../volumes/eligibility.ts';
import type { VolumeRequest } from '../../volumes/persistent-volume.ts';
import { type PlanInput, planVolume, type VolumePlan } from '../../volumes/plan.ts';
import type { Dependencies } from '../dependencies.ts';
import { parkOrRetry, recordClaimEvent, reportProvisioningFailed } from '../outcomes.ts';
import { takeClaim } from './take-claim.ts';
import { findNameClash } from './write-volume.ts';

/** A claim to plan for, its class, and where an earlier call asked for its volume. */
type OurClaim = Pick<PlanInput, 'claim' | 'cls' | 'place'>;

/** Decides what to do with a claim: whether it is ours (src/volumes/eligibility.ts), and the
 * request for its volume (src/volumes/plan.ts). The texts of refusals come from src/volumes/, those
 * of clones from clone-source.ts there, those of restores from snapshot-source.ts.
 * @throws KubeError if the API server can't be asked */
export async function planClaim(
  deps: Dependencies,
  claim: Claim | undefined,
  begun: Begun,
): Promise<Intent> {
  if (claim === undefined) return { kind: 'none', reason: 'the claim is gone' };
  const { cluster, driver } = deps;
  const verdict = shouldProvision(claim, driver.facts(), cluster.classOf);
  if (verdict.kind === 'ignore') return { kind: 'none', reason: verdict.reason };
  if (verdict.kind === 'no-class') return verdict;
  const { cls } = verdict;
  const ours = { claim, cls, place: placeOf(begun) };
  const { ownNode } = driver.facts();
  if (ownNode === undefined || selectedNodeOf(claim) !== '') return planOurs(deps, ours);
  // One that was begun has a node, which the journal knows.
  const isFree = cls.volumeBindingMode === 'Immediate' && begun.leftMs === undefined;
  if (!isFree || !deps.settings.bindsAtOnce)
    return { kind: 'none', reason: 'no node is selected for the claim yet' };
  return takeClaim(deps, ownNode, ours, (taken) => planOurs(deps, { ...ours, claim: taken }));
}

/** R1: plans by what the journal has of a claim that is gone, bound elsewhere, or another's by now.
 * @param object  the journal object that the claim's job names
 * @throws KubeError */
export async function planFromJournal(
  deps: Dependencies,
  { uid }: JobKey,
  object: string | undefined,
  begun: Begun,
): Promise<Intent> {
  const { cluster } = deps;
  const entry = await readEntryOf(cluster.kube, deps.journal, object ?? '', uid);
  if (entry === undefined) return { kind: 'none', reason: 'the journal has no entry of it' };
  const { claim } = entry;
  const className = classNameOf(claim);
  const cls = entry.cls ?? cluster.classOf(className);
  if (cls === undefined) return { kind: 'no-class', className };
  return planOurs(deps, { claim, cls, place: placeOf(begun) });
}

/** R7: a volume may exist for a claim that is gone, and it can't be planned what to ask the driver.
 * The entry stays in the journal, and the run comes again after the longest delay. */
export function stayInJournal(
  { driver, reports: { log } }: Dependencies,
  job: JobKey,
  { why, until }: { readonly why: string; readonly until: readonly WaitCondition[] },
  leftMs = 0,
): Outcome {
  const reason =
    `${VANISHED} that can't be asked for any more: ${why}; ` +
    `put back what is missing, or look for the volume and run: ` +
    `sutler forget ${job.uid} --driver-name=${driver.facts().name} --why=REASON`;
  log.warn({ ...logFields(job), reason }, 'a vanished claim stays in the journal');
  return leftMs > 0
    ? { kind: 'later', reason, delayMs: leftMs }
    : { kind: 'parked', reason, until };
}

function placeOf({ leftMs, place }: Begun): TopologyRequirement | undefined {
  return leftMs === undefined ? undefined : parseRequirement(place);
}

async function planOurs(
  { cluster, driver, settings: { options } }: Dependencies,
  { claim, cls, place }: OurClaim,
): Promise<Intent> {
  const topology = cluster.topology();
  const input = { claim, cls, driver: driver.facts(), options, topology, place };
  const plan = await planVolume(cluster.kube, input);
  if (plan.kind !== 'create') return plan;
  const clash = await findNameClash(cluster.kube, options, claim.metadata.uid);
  if (clash !== undefined) return { kind: 'refuse', message: clash, waitsFor: [] };
  return { kind: 'create', claim, planned: { ...plan, endpoint: driver.endpoint } };
}

/** What a run does with its claim. */
export type Intent =
  /** Create the volume of this claim by this request. `isGone`: the claim is the journal's. */
  | {
      readonly kind: 'create';
      readonly claim: Claim;
      readonly planned: VolumeRequest;
      readonly isGone?: true;
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

/** Ends the run of a claim for which no volume is to be created. */
export async function endWithoutCreation(
  deps: Dependencies,
  claim: Claim | undefined,
  intent: Exclude<Intent, { kind: 'create' }>,
): Promise<Outcome> {
  const { events } = deps.cluster;
  switch (intent.kind) {
    case 'none':
      return { kind: 'done', note: intent.reason };
    case 'wait':
      if (intent.message !== undefined) reportProvisioningFailed(events, claim, intent.message);
      return intent.outcome;
    case 'no-class':
      return {
        kind: 'parked',
        reason: `storageClass "${intent.className}" not found`,
        until: [{ resource: classes.plural, name: intent.className, seen: '' }],
      };
    case 'populator':
      recordClaimEvent(events, claim, {
        type: 'Normal',
        reason: 'Provisioning',
        message: 'Assuming an external populator will provision the volume',
        component: 'external-provisioner',
        isAlwaysTold: true,
      });
      return { kind: 'done', note: 'left to a volume populator' };
    case 'refuse':
      reportProvisioningFailed(events, claim, intent.message);
      return parkOrRetry(intent.message, intent.waitsFor);
    case 'reschedule':
      reportProvisioningFailed(events, claim, intent.message);
      return rescheduleOrPark(deps, claim, intent);
  }
}

/** Asks for another node. A claim from which no selected node can be removed waits for a change of
 * the nodes. */
async function rescheduleOrPark(
  deps: Dependencies,
  claim: Claim | undefined,
  { message: reason, waitsFor }: Extract<Intent, { kind: 'reschedule' }>,
): Promise<Outcome> {
  if (claim?.metadata.annotations?.[SELECTED_NODE] === undefined)
    return parkOrRetry(reason, waitsFor);
  return (await requestReschedule(deps, claim)) ?? { kind: 'retry', reason };
}

/** Asks the scheduler for another node by removing the selected node from a claim whose volume
 * can't be created for it (sig-storage-lib-external-provisioner controller/controller.go
 * rescheduleProvisioning).
 * @returns undefined if the claim has no selected node, or it could not be removed */
export async function requestReschedule(
  { cluster, driver, reports, settings }: Dependencies,
  claim: Claim,
): Promise<Outcome | undefined> {
  const mayReschedule =
    supportsTopology(driver.facts(), settings.options.gates) && selectedNodeOf(claim) !== '';
  if (!mayReschedule || claim.metadata.annotations?.[SELECTED_NODE] === undefined) return undefined;
  const { namespace = '', name } = claim.metadata;
  const { [SELECTED_NODE]: _, ...annotations } = claim.metadata.annotations;
  const changed = { ...claim, metadata: { ...claim.metadata, annotations } };
  try {
    await cluster.kube.update(claims, { namespace, name }, changed);
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    reports.log.warn(
      { claim: `${namespace}/${name}`, err: error },
      'could not remove the selected node from the claim; the next run tries again',
    );
    return undefined;
  }
  return { kind: 'done', note: 'the scheduler is asked for another node', needsNode: true };
}

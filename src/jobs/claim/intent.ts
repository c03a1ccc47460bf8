import { SELECTED_NODE } from '../../kube/keys.ts';
import { KubeError } from '../../kube/kube-error.ts';
import type { Claim } from '../../kube/objects.ts';
import { claims, classes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import { supportsTopology } from '../../volumes/driver-facts.ts';
import { selectedNodeOf } from '../../volumes/eligibility.ts';
import type { VolumePlan } from '../../volumes/plan.ts';
import type { Dependencies } from '../dependencies.ts';
import { parkOrRetry } from '../outcomes.ts';
import { recordClaimEvent, reportProvisioningFailed } from '../report-events.ts';

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

/** Ends the run of a claim that has no open record and for which no volume is to be created. */
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
  const { namespace = '', name, uid, resourceVersion } = claim.metadata;
  try {
    const body = { metadata: { uid, resourceVersion, annotations: { [SELECTED_NODE]: null } } };
    await cluster.kube.patch(claims, { namespace, name }, { type: 'merge', body });
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

import { SELECTED_NODE } from '../../kube/keys.ts';
import type { Claim } from '../../kube/objects.ts';
import { classes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { parkOrRetry } from '../common-outcomes.ts';
import { type ClaimRun, recordClaimEvent, reportProvisioningFailed } from '../report-events.ts';
import type { ProcessorPorts } from '../ports.ts';
import type { Intent } from './intent.ts';
import { requestReschedule } from './request-reschedule.ts';

/** Ends the run of a claim that has no open record and for which no volume is to be created. */
export async function endWithoutCreation(
  ports: ProcessorPorts,
  { claim }: Pick<ClaimRun, 'claim'>,
  intent: Exclude<Intent, { kind: 'create' }>,
): Promise<Outcome> {
  switch (intent.kind) {
    case 'none':
      return { kind: 'done', note: intent.reason };
    case 'wait':
      if (intent.message !== undefined) reportProvisioningFailed(ports, { claim }, intent.message);
      return intent.outcome;
    case 'no-class':
      return {
        kind: 'parked',
        reason: `storageClass "${intent.className}" not found`,
        until: [{ resource: classes.plural, name: intent.className, seen: '' }],
      };
    case 'populator':
      recordClaimEvent(ports, claim, {
        type: 'Normal',
        reason: 'Provisioning',
        message: 'Assuming an external populator will provision the volume',
        component: 'external-provisioner',
        isAlwaysTold: true,
      });
      return { kind: 'done', note: 'left to a volume populator' };
    case 'refuse':
      reportProvisioningFailed(ports, { claim }, intent.message);
      return parkOrRetry(intent.message, intent.waitsFor);
    case 'reschedule':
      reportProvisioningFailed(ports, { claim }, intent.message);
      return rescheduleOrPark(ports, claim, intent);
  }
}

/** Asks for another node. A claim from which no selected node can be removed waits for a change of
 * the nodes. */
async function rescheduleOrPark(
  ports: ProcessorPorts,
  claim: Claim | undefined,
  { message: reason, waitsFor }: Extract<Intent, { kind: 'reschedule' }>,
): Promise<Outcome> {
  if (claim?.metadata.annotations?.[SELECTED_NODE] === undefined)
    return parkOrRetry(reason, waitsFor);
  return (await requestReschedule(ports, claim)) ?? { kind: 'retry', reason };
}

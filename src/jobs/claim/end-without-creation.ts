import { classes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { parkOrRetry } from '../common-outcomes.ts';
import { type ClaimRun, recordClaimEvent, reportProvisioningFailed } from '../report-events.ts';
import type { ProcessorPorts } from '../ports.ts';
import type { Intent } from './decide-intent.ts';

/** Ends the run of a claim that has no open record and for which no volume is to be created. */
export async function endWithoutCreation(
  ports: ProcessorPorts,
  { claim, run }: ClaimRun,
  intent: Exclude<Intent, { kind: 'create' }>,
): Promise<Outcome> {
  switch (intent.kind) {
    case 'none':
      return { kind: 'done', note: intent.reason };
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
      await reportProvisioningFailed(ports, { claim, run }, intent.message);
      return parkOrRetry(intent.message, intent.waitsFor);
  }
}

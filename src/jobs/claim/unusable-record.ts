import type { Claim, Volume } from '../../kube/objects.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { OpenedCreate } from '../../records/open-results.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import { type RecordOwner, whyUnfit } from '../../volumes/record-fit.ts';
import { reportProvisioningFailed } from '../report-events.ts';
import type { ProcessorPorts } from '../ports.ts';

type CheckedPorts = Pick<ProcessorPorts, 'driver' | 'options' | 'classOf'>;

/** The check whether a stored request is one for this claim.
 * @param job  names the claim if it is gone */
export function fitsClaim(
  ports: CheckedPorts,
  job: RecordOwner['claim'],
  claim: Claim | undefined,
): (stored: VolumeRequest) => string | undefined {
  const { uid, namespace, name } = job;
  const annotations = claim?.metadata.annotations;
  return (stored) =>
    whyUnfit(stored, {
      ...ownerOf(ports),
      claim: { uid, namespace, name, annotations },
      className: claim && classNameOf(claim),
    });
}

/** The check whether a stored request is one for the claim of this PV.
 * @param id  of the record */
export function fitsVolume(
  ports: CheckedPorts,
  id: string,
  volume: Volume,
): (stored: VolumeRequest) => string | undefined {
  const { claimRef, storageClassName: className } = volume.spec;
  const { namespace = '', name = '' } = claimRef ?? {};
  const claim = { uid: id, namespace, name };
  return (stored) => whyUnfit(stored, { ...ownerOf(ports), claim, className, volume });
}

function ownerOf({ driver, options, classOf }: CheckedPorts) {
  return { driver: driver(), options, classOf };
}

/** Ends the run of a claim whose record is not used. It is looked at again after the longest delay.
 */
export function refuseRecord(
  ports: Pick<ProcessorPorts, 'events'>,
  claim: Claim | undefined,
  { reason }: Extract<OpenedCreate, { kind: 'unusable' }>,
): Outcome {
  reportProvisioningFailed(ports, { claim }, reason);
  return { kind: 'parked', reason };
}

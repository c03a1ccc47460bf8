import type { Replay } from '../../records/open-results.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import type { VolumeAnswer } from '../../volumes/persistent-volume.ts';
import type { ClaimAttempt } from '../attempt.ts';
import type { ProcessorPorts } from '../ports.ts';

/** A creation whose record this run has opened, so that it may send the request. */
export interface OpenCreation extends ClaimAttempt {
  /** The request; its endpoint is the gateway that all calls of this attempt go to. */
  readonly stored: VolumeRequest;
  /** Set if an earlier run has sent the request. */
  readonly replay?: Replay;
}

/** A volume that the driver created, now or in an earlier run; its record is still open. */
export interface CreatedVolume extends OpenCreation {
  readonly answer: VolumeAnswer;
  /** Whether the driver took so long that the claim may have been deleted meanwhile. */
  readonly wasLong: boolean;
}

/** Keeps the driver's answer in the record, so that the next run needs no call.
 * @param code  see forget.ts */
export function keepAnswer(
  ports: Pick<ProcessorPorts, 'records'>,
  { attempt, answer }: CreatedVolume,
  code?: string,
): Promise<void> {
  return ports.records.leaveAnswered(attempt.id, attempt.owner, answer, code);
}

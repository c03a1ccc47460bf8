import type { VolumeAnswer, VolumeSkeleton } from '../../volumes/persistent-volume.ts';
import type { ClaimAttempt } from '../attempt.ts';
import type { ProcessorPorts } from '../ports.ts';

/** A volume that the driver has created, now or in an earlier run, and whose record this run owns. */
export interface CreatedVolume extends ClaimAttempt {
  readonly skeleton: VolumeSkeleton;
  readonly answer: VolumeAnswer;
  /** Whether the driver took so long that the claim may have gone since it was read. */
  readonly wasSlow: boolean;
}

/** Keeps the driver's answer in the record, so that the next run needs no call. */
export function keepAnswer(
  ports: Pick<ProcessorPorts, 'records'>,
  { attempt, answer }: CreatedVolume,
): Promise<void> {
  return ports.records.leaveAnswered(attempt.id, attempt.owner, answer);
}

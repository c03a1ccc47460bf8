import type { Outcome } from '../../queue/outcome.ts';
import { compareVolumes } from '../../volumes/handles.ts';
import { completeVolume } from '../../volumes/persistent-volume.ts';
import type { Attempt } from '../attempt.ts';
import { waitForRecord } from '../common-outcomes.ts';
import { sendStored } from '../claim/call-create-volume.ts';
import { deleteDuplicateVolume } from '../claim/delete-duplicate.ts';
import type { VolumeRun } from '../report-events.ts';
import type { ProcessorPorts } from '../ports.ts';

/** Repeats the CreateVolume of a volume before its deletion, because its creation is open: only its
 * success proves that no earlier call is still at work (record rule 5). The PV exists already, so
 * the answer is only compared with it. */
export async function resolveCreation(
  ports: ProcessorPorts,
  attempt: Attempt,
  { volume, run }: VolumeRun,
): Promise<Outcome> {
  const opened = await ports.records.openExisting(attempt.id, attempt);
  if (opened.kind === 'busy' || opened.kind === 'not-yet') return waitForRecord(opened);
  if (opened.kind !== 'replay')
    return { kind: 'later', reason: 'the volume record changed meanwhile', delayMs: 0 };
  const claimAttempt = { attempt, claim: undefined, run };
  const outcome = await sendStored(ports, claimAttempt, opened, async (_, created) => {
    if (compareVolumes(volume, completeVolume(created.stored.skeleton, created.answer)) !== 'same')
      return deleteDuplicateVolume(ports, created, volume.metadata);
    await ports.records.closeStored(attempt.id, attempt.owner);
    return { kind: 'done' };
  });
  return outcome.kind === 'done'
    ? { kind: 'later', reason: 'the creation is resolved; the deletion follows', delayMs: 0 }
    : outcome;
}

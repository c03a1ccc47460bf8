import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { Replay } from '../../records/open-results.ts';
import { compareVolumes } from '../../volumes/handles.ts';
import { completeVolume } from '../../volumes/persistent-volume.ts';
import type { ClaimAttempt } from '../attempt.ts';
import type { ProcessorPorts } from '../ports.ts';
import { sendStored } from './call-create-volume.ts';
import { deleteDuplicateVolume } from './delete-duplicate.ts';
import { reportSuccess } from './store-volume.ts';

/** Finishes a creation that an earlier run left open. If the PV of this claim exists, the record
 * closes without a call (invariant 4), unless it keeps an answer that names another volume: a
 * duplicate, which the earlier run could not delete. Without that PV the stored request is sent
 * again (invariant 3). */
export async function replayCreation(
  ports: ProcessorPorts,
  claimAttempt: ClaimAttempt,
  replay: Replay,
): Promise<Outcome> {
  const { attempt, claim } = claimAttempt;
  // The name as stored: the flags that form names may have changed since the volume was planned.
  const { skeleton } = replay.stored;
  const { name } = skeleton.volume.metadata;
  const volume = await ports.kube.get<Volume>(volumes, { name }).catch(async (error: unknown) => {
    // Nothing was sent, so the record must not say that this attempt may have created a volume.
    await ports.records.revert(attempt.id, attempt.owner);
    throw error;
  });
  if (volume?.spec.claimRef?.uid !== attempt.id) return sendStored(ports, claimAttempt, replay);
  if (volume.metadata.deletionTimestamp !== undefined) {
    await ports.records.revert(attempt.id, attempt.owner);
    return { kind: 'later', reason: `volume ${name} is being deleted` };
  }
  const { stored, answer } = replay;
  if (answer !== undefined && compareVolumes(volume, completeVolume(skeleton, answer)) !== 'same') {
    const created = { ...claimAttempt, stored, replay, answer, wasSlow: false };
    return deleteDuplicateVolume(ports, created, skeleton.volume.metadata);
  }
  await ports.records.closeStored(attempt.id, attempt.owner, 'seen');
  await reportSuccess(ports, claim, skeleton);
  return { kind: 'done', note: `volume ${name} exists already` };
}

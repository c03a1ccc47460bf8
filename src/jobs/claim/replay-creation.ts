import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { DUPLICATE_LEFT } from '../../records/forget.ts';
import type { Replay } from '../../records/open-results.ts';
import type { ClaimAttempt } from '../attempt.ts';
import type { ProcessorPorts } from '../ports.ts';
import { sendStored } from './call-create-volume.ts';
import { reportSuccess } from './store-volume.ts';

/** Finishes a creation that an earlier run left open. If the PV of this claim exists, the record
 * closes without a call as soon as no earlier call is at work any more (invariant 4, record rule
 * 5); otherwise the stored request is sent again (invariant 3). It is sent again, too, where the
 * claim is gone or the PV Released: the PV is about to be deleted; and where another provisioner
 * may have led meanwhile: it deletes volumes without regard to our records, so the PV may name one
 * that is gone, beside one that our earlier call has made (record rule 9). */
export async function replayCreation(
  ports: ProcessorPorts,
  claimAttempt: ClaimAttempt,
  replay: Replay,
): Promise<Outcome> {
  const { attempt, claim } = claimAttempt;
  // With the answer, a PV of this name is compared with it. A duplicate volume that may still exist
  // is found again only by the driver's next answer.
  if (replay.answer !== undefined || replay.lastCode === DUPLICATE_LEFT)
    return sendStored(ports, claimAttempt, replay);
  // The name as stored: the flags that form names may have changed since the volume was planned.
  const { pvTemplate } = replay.stored;
  const { name } = pvTemplate.volume.metadata;
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
  if (claim === undefined || volume.status?.phase === 'Released')
    return sendStored(ports, claimAttempt, replay);
  if (replay.settlesInMs > 0) {
    await ports.records.revert(attempt.id, attempt.owner);
    const reason = `volume ${name} exists; an earlier call for it may still be at work`;
    return { kind: 'later', reason, delayMs: replay.settlesInMs };
  }
  if (replay.isOfEarlierTerm) return sendStored(ports, claimAttempt, replay);
  await ports.records.closeStored(attempt.id, attempt.owner);
  await reportSuccess(ports, claim, pvTemplate);
  return { kind: 'done', note: `volume ${name} exists already` };
}

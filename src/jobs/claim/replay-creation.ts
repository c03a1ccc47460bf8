import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { OpenedCreate } from '../../records/open-results.ts';
import { type ClaimAttempt } from '../attempt.ts';
import type { ProcessorPorts } from '../ports.ts';
import { callCreateVolume } from './call-create-volume.ts';
import { reportSuccess } from './store-volume.ts';

/** Finishes a creation that an earlier run left open. If the PV is there for this claim, the record
 * closes without a call (invariant 4); else the stored request is sent again (invariant 3). */
export async function replayCreation(
  ports: ProcessorPorts,
  replay: ClaimAttempt & { readonly opened: Extract<OpenedCreate, { kind: 'replay' }> },
): Promise<Outcome> {
  const { attempt, claim, run, opened } = replay;
  // The stored name counts: the flags that make names may have changed since it was planned.
  const { skeleton } = opened.stored;
  const { name } = skeleton.volume.metadata;
  let volume: Volume | undefined;
  try {
    volume = await ports.kube.get<Volume>(volumes, { name });
  } catch (error) {
    // Nothing was sent: the next run need not wait for the end of this ownership, nor take this
    // attempt for an ambiguous call.
    await ports.records.revert(attempt.id, attempt.owner);
    throw error;
  }
  if (volume?.spec.claimRef?.uid !== attempt.id)
    return callCreateVolume(ports, {
      attempt: { ...attempt, gateway: opened.stored.endpoint },
      claim,
      run,
      stored: opened.stored,
      replayed: opened,
    });
  if (volume.metadata.deletionTimestamp !== undefined) {
    await ports.records.revert(attempt.id, attempt.owner);
    return { kind: 'later', reason: `volume ${name} is being deleted` };
  }
  await ports.records.closeStored(attempt.id, attempt.owner, 'seen');
  await reportSuccess(ports, { claim, skeleton });
  return { kind: 'done', note: `volume ${name} exists already` };
}

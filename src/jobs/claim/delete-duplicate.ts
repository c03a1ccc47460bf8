import { CsiError } from '../../csi/status.ts';
import type { NewVolume, Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { deletionSecret } from '../../volumes/deletion.ts';
import { compareVolumes } from '../../volumes/handles.ts';
import { completeVolume } from '../../volumes/persistent-volume.ts';
import { MAX_READ_AGE_MS } from '../attempt.ts';
import { recordClaimEvent, reportProvisioningFailed } from '../report-events.ts';
import type { ProcessorPorts } from '../ports.ts';
import { readSecretValues } from '../secret-values.ts';
import { type CreatedVolume, keepAnswer } from './creation.ts';

/** Takes the place of a gRPC code in the record: a duplicate volume may still exist. */
export const DUPLICATE_LEFT = 'DuplicateVolume';

/** Deletes a created volume whose claim has a PV with another handle: it is a duplicate (invariant
 * 5). The PV is read again first, since it may have been replaced by one that names this volume.
 * @param metadata of that PV */
export async function deleteDuplicateVolume(
  ports: ProcessorPorts,
  created: CreatedVolume,
  metadata: NewVolume['metadata'],
): Promise<Outcome> {
  const { attempt, claim, stored, answer } = created;
  const { handle } = answer;
  const { name } = metadata;
  const readMs = ports.clock.nowMs();
  const current = await ports.kube.get<Volume>(volumes, { name });
  if (current?.spec.claimRef?.uid !== attempt.id) {
    await keepAnswer(ports, created);
    return { kind: 'later', reason: `volume ${name} changed meanwhile` };
  }
  switch (compareVolumes(current, completeVolume(stored.skeleton, answer))) {
    case 'same':
      await ports.records.closeStored(attempt.id, attempt.owner);
      return { kind: 'done', note: `volume ${name} has this handle` };
    case 'unclear': {
      await keepAnswer(ports, created);
      const reason =
        `volume ${name} is stored in another form than the volume ${handle} ` +
        'that was created: compare the two and remove one by hand';
      await reportProvisioningFailed(ports, created, reason);
      return { kind: 'retry', reason };
    }
    case 'other': {
      const failure = await sendDeletion(ports, created, metadata, readMs);
      if (failure !== undefined) {
        const reason = `the duplicate volume ${handle} could not be deleted: ${failure}`;
        return { kind: 'retry', reason };
      }
      await ports.records.closeStored(attempt.id, attempt.owner);
      const message = `the driver created a second volume ${handle} for this claim; it was deleted`;
      recordClaimEvent(ports, claim, { type: 'Warning', reason: 'ProvisioningFailed', message });
      return { kind: 'done', note: message };
    }
  }
}

/** Sends DeleteVolume for the duplicate. The record stays open.
 * @param readMs  when the PV was read that names another volume
 * @returns why the volume may still exist; undefined if it is deleted */
async function sendDeletion(
  ports: ProcessorPorts,
  created: CreatedVolume,
  metadata: NewVolume['metadata'],
  readMs: number,
): Promise<string | undefined> {
  const { attempt, run, stored, answer } = created;
  const secrets = await readSecretValues(ports, deletionSecret(metadata));
  if (secrets.kind !== 'values') {
    await keepAnswer(ports, created);
    return secrets.message;
  }
  const notAfterMs = Math.min(attempt.notAfterMs, readMs + MAX_READ_AGE_MS);
  const { timeoutMs } = ports;
  try {
    await ports.csi.deleteVolume(
      { volumeId: answer.handle, secrets: secrets.values },
      { timeoutMs, notAfterMs, gateway: stored.endpoint, stopping: run.signal },
    );
    return undefined;
  } catch (error) {
    if (!(error instanceof CsiError)) throw error;
    const { notForwarded, message } = error;
    // After a DeleteVolume was sent the volume may be gone: no PV may be written for the answer any
    // more, so the creation is repeated.
    if (notForwarded) await keepAnswer(ports, created);
    else await ports.records.leaveAmbiguous(attempt.id, attempt.owner, DUPLICATE_LEFT);
    return message;
  }
}

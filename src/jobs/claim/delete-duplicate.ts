import { CsiError } from '../../csi/status.ts';
import type { NewVolume, Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { deletionSecret } from '../../volumes/deletion.ts';
import { compareVolumes } from '../../volumes/handles.ts';
import { completeVolume } from '../../volumes/persistent-volume.ts';
import { recordClaimEvent, reportProvisioningFailed } from '../events.ts';
import type { ProcessorPorts } from '../ports.ts';
import { readSecretValues, withoutSecrets } from '../secret-values.ts';
import { type CreatedVolume, keepAnswer } from './created-volume.ts';

/** Deletes a created volume whose claim has a PV with another handle: it is a duplicate (invariant
 * 5). The PV is read again first, since it may have been replaced by one that names this volume. */
export async function deleteDuplicateVolume(
  ports: ProcessorPorts,
  created: CreatedVolume,
  volume: Pick<NewVolume, 'metadata'>,
): Promise<Outcome> {
  const { attempt, answer } = created;
  const { name } = volume.metadata;
  const current = await ports.kube.get<Volume>(volumes, { name });
  if (current?.spec.claimRef?.uid !== attempt.id) {
    await keepAnswer(ports, created);
    return { kind: 'later', reason: `volume ${name} changed meanwhile` };
  }
  switch (compareVolumes(current, completeVolume(created.skeleton, answer))) {
    case 'same':
      await ports.records.closeStored(attempt.id, attempt.owner, 'answered');
      return { kind: 'done', note: `volume ${name} has this handle` };
    case 'unclear': {
      await keepAnswer(ports, created);
      const reason =
        `volume ${name} is stored in another form than the volume ${answer.handle} ` +
        'that was created: compare the two and remove one by hand';
      await reportProvisioningFailed(ports, created, reason);
      return { kind: 'retry', reason };
    }
    case 'other':
      return sendDeletion(ports, created, volume);
  }
}

async function sendDeletion(
  ports: ProcessorPorts,
  created: CreatedVolume,
  volume: Pick<NewVolume, 'metadata'>,
): Promise<Outcome> {
  const { attempt, claim, answer } = created;
  const failed = (why: string): Outcome => ({
    kind: 'retry',
    reason: `the duplicate volume ${answer.handle} could not be deleted: ${why}`,
  });
  const secrets = await readSecretValues(ports, deletionSecret(volume.metadata));
  if (secrets.kind !== 'values') {
    await keepAnswer(ports, created);
    return failed(secrets.message);
  }
  try {
    await ports.csi.deleteVolume(
      { volumeId: answer.handle, secrets: secrets.values },
      { timeoutMs: ports.timeoutMs, notAfterMs: attempt.notAfterMs, gateway: attempt.gateway },
    );
  } catch (error) {
    if (!(error instanceof CsiError)) throw error;
    // After a DeleteVolume was sent the handle may be gone: no PV may be written for the answer any
    // more, so the creation is repeated.
    if (error.notForwarded) await keepAnswer(ports, created);
    else await ports.records.leaveAmbiguous(attempt.id, attempt.owner, error.codeName);
    return failed(withoutSecrets(error, secrets.values).message);
  }
  await ports.records.closeStored(attempt.id, attempt.owner, 'answered');
  const message = `the driver created a second volume ${answer.handle} for this claim; it was deleted`;
  recordClaimEvent(ports, claim, { type: 'Warning', reason: 'ProvisioningFailed', message });
  return { kind: 'done', note: message };
}

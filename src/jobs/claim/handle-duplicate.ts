import { CsiError } from '../../csi/status.ts';
import type { NewVolume, Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { DUPLICATE_LEFT, forgetCommand } from '../../records/forget.ts';
import { deletionSecret } from '../../volumes/deletion.ts';
import { compareVolumes, identityOf } from '../../volumes/handles.ts';
import { completeVolume } from '../../volumes/persistent-volume.ts';
import { MAX_READ_AGE_MS } from '../attempt.ts';
import {
  recordClaimEvent,
  reportDeletionFailed,
  reportProvisioningFailed,
} from '../report-events.ts';
import type { ProcessorPorts } from '../ports.ts';
import { readSecretValues } from '../secret-values.ts';
import { type CreatedVolume, keepAnswer } from './creation.ts';

/** Ends the run of a created volume whose claim has a PV with another handle (invariant 5). The PV
 * is read again first, since it may have been replaced by one that names this volume. Only the run
 * that got the driver's first answer deletes the volume as a duplicate, and only while the PV was
 * never in use and need not be kept: later answers may spell the handle of the same volume
 * differently, as after an upgrade of the driver. Otherwise the record stays open, without another
 * call, until an operator has compared the two.
 * @param metadata of that PV */
export async function handleDuplicateVolume(
  ports: ProcessorPorts,
  created: CreatedVolume,
  metadata: NewVolume['metadata'],
): Promise<Outcome> {
  const { attempt, claim, stored, answer, replay } = created;
  const { handle } = answer;
  const { name } = metadata;
  const readMs = ports.clock.nowMs();
  const current = await ports.kube.get<Volume>(volumes, { name });
  if (current?.spec.claimRef?.uid !== attempt.id) {
    await keepAnswer(ports, created);
    return { kind: 'later', reason: `volume ${name} changed meanwhile` };
  }
  const found = compareVolumes(current, completeVolume(stored.pvTemplate, answer));
  if (found === 'same') {
    await ports.records.closeStored(attempt.id, attempt.owner);
    return { kind: 'done', note: `volume ${name} has this handle` };
  }
  const isUnused =
    current.status?.phase !== 'Bound' && current.spec.persistentVolumeReclaimPolicy === 'Delete';
  if (found === 'unclear' || replay !== undefined || !isUnused)
    return keepDuplicate(ports, created, current);
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

/** Keeps record and answer. If the claim is gone and the PV to be deleted, its own volume is
 * deleted first (volume/resolve-creation.ts), and then a PV is written for the answer. Otherwise an
 * operator is asked, on the claim, or on the PV if the claim is gone. */
async function keepDuplicate(
  ports: ProcessorPorts,
  created: CreatedVolume,
  volume: Volume,
): Promise<Outcome> {
  const { attempt, claim, answer } = created;
  await keepAnswer(ports, created, DUPLICATE_LEFT);
  const { name, resourceVersion: seen } = volume.metadata;
  const until = [{ resource: volumes.plural, name, seen }];
  const { phase } = volume.status ?? {};
  const isDeleted = phase === 'Released' && volume.spec.persistentVolumeReclaimPolicy === 'Delete';
  if (claim === undefined && isDeleted) {
    const reason = `PersistentVolume ${name} names another volume, which is deleted first`;
    return { kind: 'parked', reason, until };
  }
  const stored = identityOf(volume)?.id ?? 'another volume';
  const reason =
    `the driver answered with volume ${answer.handle}, but PersistentVolume ${name} names ` +
    `${stored}; compare the two in the storage: if they are two volumes, delete the one that ` +
    `nobody uses; ${forgetCommand(attempt.id, ports.driver().name)}`;
  if (claim === undefined) reportDeletionFailed(ports, { volume }, reason);
  else reportProvisioningFailed(ports, created, reason);
  return { kind: 'parked', reason, until };
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

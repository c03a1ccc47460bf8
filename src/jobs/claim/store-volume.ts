import { isAlreadyExists, KubeError } from '../../kube/kube-error.ts';
import type { Claim, NewVolume, Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { compareVolumes } from '../../volumes/handles.ts';
import { completeVolume, type PvTemplate } from '../../volumes/persistent-volume.ts';
import { recordClaimEvent, reportProvisioningFailed } from '../report-events.ts';
import type { ProcessorPorts } from '../ports.ts';
import { readClaim } from '../read-claims.ts';
import { releaseRestoredSnapshot } from '../snapshot/release-restored.ts';
import { type CreatedVolume, keepAnswer } from './creation.ts';
import { handleDuplicateVolume } from './handle-duplicate.ts';

/** Writes the PV of a created volume and closes its record. If the PV can't be written, the record
 * keeps the driver's answer. */
export async function storeVolume(ports: ProcessorPorts, created: CreatedVolume): Promise<Outcome> {
  const volume = completeVolume(created.stored.pvTemplate, created.answer);
  try {
    await ports.kube.createUnread(volumes, undefined, volume);
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    return isAlreadyExists(error)
      ? handleExistingVolume(ports, created, volume)
      : handleWriteFailure(ports, created, error);
  }
  return closeRecord(ports, created, volume);
}

async function closeRecord(
  ports: ProcessorPorts,
  created: CreatedVolume,
  volume: NewVolume,
): Promise<Outcome> {
  const { attempt, claim, stored, answer, wasLong } = created;
  const { name } = volume.metadata;
  await ports.records.closeStored(attempt.id, attempt.owner);
  ports.capacity.volumeChanged(volume.spec);
  ports.log.info(
    { claim: `${attempt.job.namespace}/${attempt.job.name}`, volume: name, handle: answer.handle },
    'volume provisioned',
  );
  // A claim that was deleted during a long call gets no event.
  const isGone =
    wasLong &&
    claim !== undefined &&
    (await readClaim(ports, claim.metadata).catch(() => claim)) === undefined;
  await reportSuccess(ports, isGone ? undefined : claim, stored.pvTemplate);
  return { kind: 'done', note: `volume ${name}` };
}

/** Releases the snapshot that the volume was restored from, and records the event of success. */
export async function reportSuccess(
  ports: Pick<ProcessorPorts, 'kube' | 'log' | 'events'>,
  claim: Claim | undefined,
  pvTemplate: PvTemplate,
): Promise<void> {
  await releaseRestoredSnapshot(ports, pvTemplate.source);
  const message = `Successfully provisioned volume ${pvTemplate.volume.metadata.name}`;
  recordClaimEvent(ports, claim, { type: 'Normal', reason: 'ProvisioningSucceeded', message });
}

/** Handles a PV of this name that exists already: success only if it has our handle and our claim
 * (invariant 5). */
async function handleExistingVolume(
  ports: ProcessorPorts,
  created: CreatedVolume,
  volume: NewVolume,
): Promise<Outcome> {
  const { name } = volume.metadata;
  const existing = await ports.kube.get<Volume>(volumes, { name }).catch(async (error: unknown) => {
    await keepAnswer(ports, created);
    throw error;
  });
  if (existing === undefined || existing.metadata.deletionTimestamp !== undefined) {
    await keepAnswer(ports, created);
    const reason = `volume ${name} is being deleted; it is written again when it is gone`;
    return { kind: 'later', reason };
  }
  if (existing.spec.claimRef?.uid === volume.spec.claimRef?.uid)
    return compareVolumes(existing, volume) === 'same'
      ? closeRecord(ports, created, volume)
      : handleDuplicateVolume(ports, created, volume.metadata);
  await keepAnswer(ports, created);
  const reason =
    `volume ${name} exists already and belongs to another claim; ` +
    'delete that PersistentVolume, or this claim';
  reportProvisioningFailed(ports, created, reason);
  return { kind: 'retry', reason };
}

async function handleWriteFailure(
  ports: ProcessorPorts,
  created: CreatedVolume,
  error: KubeError,
): Promise<Outcome> {
  await keepAnswer(ports, created);
  const reason =
    'the volume was created, but its PersistentVolume could not be written: ' + error.message;
  // The user can do something about a refusal (a quota, say), but not about a server that is down.
  if (error.code >= 400 && error.code < 500 && error.code !== 429)
    reportProvisioningFailed(ports, created, reason);
  return { kind: 'retry', reason };
}

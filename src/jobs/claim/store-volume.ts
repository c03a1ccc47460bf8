import { CsiError } from '../../csi/status.ts';
import { isAlreadyExists, KubeError } from '../../kube/kube-error.ts';
import type { Claim, NewVolume, Volume } from '../../kube/objects.ts';
import { claims, volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { deletionSecret } from '../../volumes/deletion.ts';
import { compareVolumes } from '../../volumes/handles.ts';
import { completeVolume } from '../../volumes/persistent-volume.ts';
import type { VolumeAnswer, VolumeSkeleton } from '../../volumes/persistent-volume.ts';
import type { Attempt } from '../attempt.ts';
import { claimEvent, provisioningFailed } from '../object-events.ts';
import type { ClaimRun } from '../object-events.ts';
import type { ProcessorPorts } from '../ports.ts';
import { releaseRestoredSnapshot } from '../snapshot/release-restored.ts';
import { readSecretValues, withoutSecrets } from '../secret-values.ts';

/** A volume that the driver has just made, or had made before, and the record that this run owns.
 */
export interface MadeVolume extends ClaimRun {
  readonly attempt: Attempt;
  readonly skeleton: VolumeSkeleton;
  readonly answer: VolumeAnswer;
  /** The driver took so long that the claim may have gone since it was read. */
  readonly wasSlow: boolean;
}

/** Writes the PV of a volume that the driver has made, and closes its record. Until then the
 * driver's answer is kept in the record. */
export async function storeVolume(ports: ProcessorPorts, made: MadeVolume): Promise<Outcome> {
  const volume = completeVolume(made.skeleton, made.answer);
  try {
    await ports.kube.create<Volume>(volumes, undefined, volume);
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    return isAlreadyExists(error)
      ? handleExistingVolume(ports, made, volume)
      : handleUnwrittenVolume(ports, made, error);
  }
  return finishStored(ports, made, volume);
}

async function finishStored(
  ports: ProcessorPorts,
  made: MadeVolume,
  volume: NewVolume,
): Promise<Outcome> {
  const { attempt, claim, skeleton, answer, wasSlow } = made;
  const { name } = volume.metadata;
  await ports.records.closeStored(attempt.id, attempt.owner, 'answered');
  ports.log.info(
    { claim: `${attempt.job.namespace}/${attempt.job.name}`, volume: name, handle: answer.handle },
    'volume provisioned',
  );
  await reportSuccess(ports, {
    claim: wasSlow ? await readClaimAgain(ports, claim) : claim,
    skeleton,
  });
  return { kind: 'done', note: `volume ${name}` };
}

/** What is left to do once the PV is there: its snapshot is let go, and the user is told. */
export async function reportSuccess(
  ports: Pick<ProcessorPorts, 'kube' | 'log' | 'events'>,
  { claim, skeleton }: { readonly claim: Claim | undefined; readonly skeleton: VolumeSkeleton },
): Promise<void> {
  if (skeleton.source?.isReleased === true) await releaseRestoredSnapshot(ports, skeleton.source);
  const message = `Successfully provisioned volume ${skeleton.volume.metadata.name}`;
  claimEvent(ports, claim, { type: 'Normal', reason: 'ProvisioningSucceeded', message });
}

/** The claim, if it is still there; as it was read where the server can't be asked. */
async function readClaimAgain(
  { kube }: Pick<ProcessorPorts, 'kube'>,
  claim: Claim | undefined,
): Promise<Claim | undefined> {
  if (claim === undefined) return undefined;
  const { namespace = '', name, uid } = claim.metadata;
  const now = await kube.get<Claim>(claims, { namespace, name }).catch(() => claim);
  return now?.metadata.uid === uid ? claim : undefined;
}

/** AlreadyExists is success only where the stored PV has our handle and our claim (invariant 5). */
async function handleExistingVolume(
  ports: ProcessorPorts,
  made: MadeVolume,
  volume: NewVolume,
): Promise<Outcome> {
  const { name } = volume.metadata;
  let namesake: Volume | undefined;
  try {
    namesake = await ports.kube.get<Volume>(volumes, { name });
  } catch (error) {
    await keepAnswer(ports, made);
    throw error;
  }
  if (namesake === undefined || namesake.metadata.deletionTimestamp !== undefined) {
    await keepAnswer(ports, made);
    return {
      kind: 'later',
      reason: `volume ${name} is being deleted; written again when it is gone`,
    };
  }
  const isOurClaim = namesake.spec.claimRef?.uid === volume.spec.claimRef?.uid;
  if (isOurClaim)
    return compareVolumes(namesake, volume) === 'same'
      ? finishStored(ports, made, volume)
      : deleteDuplicateVolume(ports, made, volume);
  await keepAnswer(ports, made);
  const message = `volume ${name} exists already and belongs to another claim; delete that PersistentVolume, or this claim`;
  await provisioningFailed(ports, made, message);
  return { kind: 'retry', reason: message };
}

/** The claim has its volume under another handle: ours is one too many. */
export async function deleteDuplicateVolume(
  ports: ProcessorPorts,
  made: MadeVolume,
  volume: Pick<NewVolume, 'metadata'>,
): Promise<Outcome> {
  const { attempt, claim, answer } = made;
  // Whoever destroys looks first: the PV may be another one by now, and name the very volume that
  // looked like one too many.
  const current = await ports.kube.get<Volume>(volumes, { name: volume.metadata.name });
  if (current?.spec.claimRef?.uid !== attempt.id) {
    await keepAnswer(ports, made);
    return { kind: 'later', reason: `volume ${volume.metadata.name} changed meanwhile` };
  }
  const relation = compareVolumes(current, completeVolume(made.skeleton, answer));
  if (relation === 'same') {
    await ports.records.closeStored(attempt.id, attempt.owner, 'answered');
    return { kind: 'done', note: `volume ${volume.metadata.name} has this handle` };
  }
  if (relation === 'unclear') {
    await keepAnswer(ports, made);
    const message = `volume ${volume.metadata.name} is stored in another form than the volume ${answer.handle} that was made: compare the two and remove one by hand`;
    await provisioningFailed(ports, made, message);
    return { kind: 'retry', reason: message };
  }
  const ref = deletionSecret(volume.metadata);
  let secrets: Record<string, string> | undefined;
  try {
    secrets = ref === undefined ? {} : await readSecretValues(ports, ref);
    if (secrets === undefined) throw new Error(`secret ${ref?.namespace}/${ref?.name} not found`);
    await ports.csi.deleteVolume(
      { volumeId: answer.handle, secrets },
      { timeoutMs: ports.timeoutMs, notAfterMs: attempt.notAfterMs, gateway: attempt.gateway },
    );
  } catch (error) {
    const isSent = error instanceof CsiError && !error.notForwarded;
    // Once a DeleteVolume was sent the handle may be gone: the creation is asked again, rather than
    // a PV written for it.
    if (isSent) await ports.records.leaveAmbiguous(attempt.id, attempt.owner, error.codeName);
    else await keepAnswer(ports, made);
    const told =
      error instanceof CsiError ? withoutSecrets(error, Object.values(secrets ?? {})) : error;
    const words = told instanceof Error ? told.message : String(told);
    return {
      kind: 'retry',
      reason: `the surplus volume ${answer.handle} could not be deleted: ${words}`,
    };
  }
  await ports.records.closeStored(attempt.id, attempt.owner, 'answered');
  const message = `the driver made a second volume ${answer.handle} for this claim; it was deleted`;
  claimEvent(ports, claim, { type: 'Warning', reason: 'ProvisioningFailed', message });
  return { kind: 'done', note: message };
}

async function handleUnwrittenVolume(
  ports: ProcessorPorts,
  made: MadeVolume,
  error: KubeError,
): Promise<Outcome> {
  await keepAnswer(ports, made);
  const message = `the volume was made, but its PersistentVolume could not be written: ${error.message}`;
  // The server's refusal is for the user to read; a server that is down is not the claim's fault.
  if (error.code >= 400 && error.code < 500 && error.code !== 429) {
    await provisioningFailed(ports, made, message);
  }
  return { kind: 'retry', reason: message, error };
}

function keepAnswer(ports: ProcessorPorts, { attempt, answer }: MadeVolume): Promise<void> {
  return ports.records.leaveAnswered(attempt.id, attempt.owner, answer);
}

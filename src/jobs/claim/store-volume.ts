import { provisionedNote } from '../../explain/time-to-volume.ts';
import { isAlreadyExists, KubeError } from '../../kube/kube-error.ts';
import type { Claim, NewVolume, Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import { logFields } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { DUPLICATE_LEFT, forgetCommand } from '../../records/forget.ts';
import type { Replay } from '../../records/open-results.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import { deletionSecret } from '../../volumes/deletion.ts';
import { compareVolumes, identityOf } from '../../volumes/handles.ts';
import {
  completeVolume,
  type PvTemplate,
  type VolumeAnswer,
} from '../../volumes/persistent-volume.ts';
import { type ClaimAttempt, MAX_READ_AGE_MS } from '../attempt.ts';
import type { Dependencies } from '../dependencies.ts';
import { createdAtMs } from '../operation-counts.ts';
import { recordClaimEvent, reportDeletionFailed, reportProvisioningFailed } from '../outcomes.ts';
import { readClaim, readSecretValues } from '../read-objects.ts';
import { releaseRestoredSnapshot } from '../release-sources.ts';
import { sendDeleteVolume } from '../volume/delete-volume.ts';

/** A creation whose record this run has opened, so that it may send the request. */
export interface OpenCreation extends ClaimAttempt {
  /** The request; its endpoint is the gateway that all calls of this attempt go to. */
  readonly stored: VolumeRequest;
  /** Set if an earlier run has sent the request. */
  readonly replay?: Replay;
}

/** A volume that the driver created, now or in an earlier run; its record is still open. */
export interface CreatedVolume extends OpenCreation {
  readonly answer: VolumeAnswer;
  /** Whether the driver took so long that the claim may have been deleted meanwhile. */
  readonly wasLong: boolean;
}

/** Keeps the driver's answer in the record, so that the next run needs no call.
 * @param code  see forget.ts */
export function keepAnswer(
  { redis }: Dependencies,
  { attempt, answer }: CreatedVolume,
  code?: string,
): Promise<void> {
  return redis.records.leaveAnswered(attempt.id, attempt.owner, answer, code);
}

/** Writes the PV of a created volume and closes its record. If the PV can't be written, the record
 * keeps the driver's answer. */
export async function storeVolume(deps: Dependencies, created: CreatedVolume): Promise<Outcome> {
  const volume = completeVolume(created.stored.pvTemplate, created.answer);
  try {
    await deps.cluster.kube.create(volumes, undefined, volume);
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    return isAlreadyExists(error)
      ? handleExistingVolume(deps, created, volume)
      : handleWriteFailure(deps, created, error);
  }
  return closeRecord(deps, created, volume);
}

async function closeRecord(
  deps: Dependencies,
  created: CreatedVolume,
  volume: NewVolume,
): Promise<Outcome> {
  const { attempt, claim, stored, wasLong } = created;
  const { name } = volume.metadata;
  await deps.redis.records.closeStored(attempt.id, attempt.owner);
  deps.reports.capacity.volumeChanged(volume.spec);
  logSuccess(deps, created, volume);
  // A claim that was deleted during a long call gets no event.
  const isGone =
    wasLong &&
    claim !== undefined &&
    (await readClaim(deps.cluster.kube, claim.metadata).catch(() => claim)) === undefined;
  await reportSuccess(deps, isGone ? undefined : claim, stored.pvTemplate);
  return { kind: 'done', note: provisionedNote(name, volume.spec.storageClassName ?? '') };
}

/** Logs the one line about a claim that got its volume. */
export function logSuccess(
  { clock, reports }: Dependencies,
  { attempt, claim, run }: ClaimAttempt,
  volume: NewVolume | Volume,
): void {
  reports.log.info(
    {
      ...logFields(attempt.job),
      class: volume.spec.storageClassName,
      volume: volume.metadata.name,
      handle: identityOf(volume)?.id,
      pendingMs: claim && clock.nowMs() - createdAtMs(claim, run.queuedMs),
      runs: run.count,
    },
    'volume provisioned',
  );
}

/** Releases the snapshot that the volume was restored from, and records the event of success. */
export async function reportSuccess(
  { cluster, reports }: Dependencies,
  claim: Claim | undefined,
  pvTemplate: PvTemplate,
): Promise<void> {
  await releaseRestoredSnapshot(cluster.kube, reports.log, pvTemplate.source);
  const message = `Successfully provisioned volume ${pvTemplate.volume.metadata.name}`;
  const reason = 'ProvisioningSucceeded';
  recordClaimEvent(cluster.events, claim, { type: 'Normal', reason, message });
}

async function handleWriteFailure(
  deps: Dependencies,
  created: CreatedVolume,
  error: KubeError,
): Promise<Outcome> {
  await keepAnswer(deps, created);
  const reason =
    'the volume was created, but its PersistentVolume could not be written: ' + error.message;
  // The user can do something about a refusal (a quota, say), but not about a server that is down.
  if (error.code >= 400 && error.code < 500 && error.code !== 429)
    reportProvisioningFailed(deps.cluster.events, created.claim, reason);
  return { kind: 'retry', reason };
}

/** Handles a PV of this name that exists already: success only if it has our handle and our claim
 * (invariant 5). */
async function handleExistingVolume(
  deps: Dependencies,
  created: CreatedVolume,
  volume: NewVolume,
): Promise<Outcome> {
  const { kube, events } = deps.cluster;
  const { name } = volume.metadata;
  const existing = await kube.get<Volume>(volumes, { name }).catch(async (error: unknown) => {
    await keepAnswer(deps, created);
    throw error;
  });
  if (existing === undefined || existing.metadata.deletionTimestamp !== undefined) {
    await keepAnswer(deps, created);
    const reason = `volume ${name} is being deleted; it is written again when it is gone`;
    return { kind: 'later', reason };
  }
  if (existing.spec.claimRef?.uid === volume.spec.claimRef?.uid)
    return compareVolumes(existing, volume) === 'same'
      ? closeRecord(deps, created, volume)
      : handleDuplicateVolume(deps, created, volume.metadata);
  await keepAnswer(deps, created);
  const reason =
    `volume ${name} exists already and belongs to another claim; ` +
    'delete that PersistentVolume, or this claim';
  reportProvisioningFailed(events, created.claim, reason);
  return { kind: 'retry', reason };
}

/** Ends the run of a created volume whose claim has a PV with another handle (invariant 5). The PV
 * is read again first, since it may have been replaced by one that names this volume. Only the run
 * that got the driver's first answer deletes the volume as a duplicate, and only while the PV was
 * never in use and need not be kept: later answers may spell the handle of the same volume
 * differently, as after an upgrade of the driver. Otherwise the record stays open, without another
 * call, until an operator has compared the two.
 * @param metadata of that PV */
export async function handleDuplicateVolume(
  deps: Dependencies,
  created: CreatedVolume,
  metadata: NewVolume['metadata'],
): Promise<Outcome> {
  const { attempt, claim, stored, answer, replay } = created;
  const { cluster, redis } = deps;
  const { handle } = answer;
  const { name } = metadata;
  const readMs = deps.clock.nowMs();
  const current = await cluster.kube.get<Volume>(volumes, { name });
  if (current?.spec.claimRef?.uid !== attempt.id) {
    await keepAnswer(deps, created);
    return { kind: 'later', reason: `volume ${name} changed meanwhile` };
  }
  const found = compareVolumes(current, completeVolume(stored.pvTemplate, answer));
  if (found === 'same') {
    await redis.records.closeStored(attempt.id, attempt.owner);
    return { kind: 'done', note: `volume ${name} has this handle` };
  }
  const isUnused =
    current.status?.phase !== 'Bound' && current.spec.persistentVolumeReclaimPolicy === 'Delete';
  if (found === 'unclear' || replay !== undefined || !isUnused)
    return keepDuplicate(deps, created, current);
  const failure = await deleteDuplicate(deps, created, metadata, readMs);
  if (failure !== undefined) {
    const reason = `the duplicate volume ${handle} could not be deleted: ${failure}`;
    return { kind: 'retry', reason };
  }
  const message = `the driver created a second volume ${handle} for this claim; it was deleted`;
  const reason = 'ProvisioningFailed';
  recordClaimEvent(cluster.events, claim, { type: 'Warning', reason, message });
  return { kind: 'done', note: message };
}

/** Keeps record and answer. If the claim is gone and the PV to be deleted, its own volume is
 * deleted first (volume/resolve-creation.ts), and then a PV is written for the answer. Otherwise an
 * operator is asked, on the claim, or on the PV if the claim is gone. */
async function keepDuplicate(
  deps: Dependencies,
  created: CreatedVolume,
  volume: Volume,
): Promise<Outcome> {
  const { attempt, claim, answer } = created;
  const { events } = deps.cluster;
  await keepAnswer(deps, created, DUPLICATE_LEFT);
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
    `nobody uses; ${forgetCommand(attempt.id, deps.driver.facts().name)}`;
  if (claim === undefined) reportDeletionFailed(events, volume, reason);
  else reportProvisioningFailed(events, claim, reason);
  return { kind: 'parked', reason, until };
}

/** Has the driver delete the duplicate, and then closes the record.
 * @param readMs  when the PV was read that names another volume
 * @returns why the volume may still exist; undefined if it is deleted */
async function deleteDuplicate(
  deps: Dependencies,
  created: CreatedVolume,
  metadata: NewVolume['metadata'],
  readMs: number,
): Promise<string | undefined> {
  const { attempt, run, stored, answer } = created;
  const { records } = deps.redis;
  const keep = () => keepAnswer(deps, created);
  const secrets = await readSecretValues(deps.cluster.kube, deletionSecret(metadata));
  if (secrets.kind !== 'values') {
    await keep();
    return secrets.message;
  }
  const error = await sendDeleteVolume(
    deps.driver,
    {
      id: attempt.id,
      run,
      handle: answer.handle,
      isMigrated: stored.pvTemplate.isMigrated === true,
      gateway: stored.endpoint,
      notAfterMs: Math.min(attempt.notAfterMs, readMs + MAX_READ_AGE_MS),
      ends: {
        notSent: keep,
        // The volume may be gone: no PV may be written for the answer any more, so the creation is
        // repeated.
        unknown: () => records.leaveAmbiguous(attempt.id, attempt.owner, DUPLICATE_LEFT),
        deleted: () => records.closeStored(attempt.id, attempt.owner),
      },
    },
    secrets.values,
  );
  return error?.message;
}

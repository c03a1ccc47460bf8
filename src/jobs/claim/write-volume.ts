import { isAlreadyExists, KubeError } from '../../kube/kube-error.ts';
import type { NewVolume, Volume } from '../../kube/objects.ts';
import { readClaim } from '../../kube/read-claim.ts';
import { volumes } from '../../kube/resources.ts';
import { logFields } from '../../queue/contract.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { identityOf, isSameVolume } from '../../volumes/handles.ts';
import {
  type NamingOptions,
  type VolumeAnswer,
  volumeName,
} from '../../volumes/persistent-volume.ts';
import type { Dependencies, Kube } from '../dependencies.ts';
import { finishedByCall, type MarkedJob } from '../mark-job.ts';
import { createdAtMs } from '../operation-counts.ts';
import { recordClaimEvent, reportProvisioningFailed } from '../outcomes.ts';
import { releaseRestoredSnapshot } from '../release-sources.ts';
import type { Creation } from './create-volume.ts';

/** A volume that the driver has created; its PV is to be written. */
export interface CreatedVolume extends Creation {
  readonly mark: MarkedJob;
  readonly answer: VolumeAnswer;
  /** Whether the driver took so long that the claim may have been deleted meanwhile. */
  readonly wasLong: boolean;
}

/** R2: the PV of a claim, by its name.
 * @returns `leaving` while it is being deleted; undefined if the claim has none */
export async function findVolume(
  { cluster, settings: { options } }: Dependencies,
  claimUid: string,
): Promise<string | undefined> {
  if (options.volumeNamePrefix === '') return undefined;
  const name = volumeName(claimUid, options);
  const volume = await cluster.kube.get<Volume>(volumes, { name });
  // With --volume-name-uuid-length, the PV of this name may belong to another claim.
  if (volume === undefined || (volume.spec.claimRef?.uid ?? claimUid) !== claimUid)
    return undefined;
  return volume.metadata.deletionTimestamp === undefined ? name : 'leaving';
}

/** Looks whether the shortened name of a volume (--volume-name-uuid-length) is another's: two
 * claims whose UIDs begin alike would get one name, and the driver would give both the same volume.
 * Names with whole UIDs can't clash.
 * @returns the refusal for the user if it is */
export async function findNameClash(
  kube: Kube,
  options: NamingOptions,
  uid: string,
): Promise<string | undefined> {
  const isShortened = options.volumeNameUuidLength !== -1 && options.volumeNamePrefix !== '';
  if (!isShortened) return undefined;
  const name = volumeName(uid, options);
  const volume = await kube.get<Volume>(volumes, { name });
  const other = volume?.spec.claimRef?.uid;
  if (volume === undefined || other === uid) return undefined;
  if (other === undefined)
    return (
      `PersistentVolume ${name} belongs to no claim and has the name that ` +
      'this claim’s volume would get; delete it, or create this claim again'
    );
  return (
    `volume name ${name} belongs to the claim with UID ${other}, whose UID begins alike; ` +
    'raise --volume-name-uuid-length, or create this claim again'
  );
}

/** R4: writes the PV of a created volume, whatever became of the claim. If it can't be written, the
 * next run has the driver answer again. */
export async function writeVolume(deps: Dependencies, created: CreatedVolume): Promise<Outcome> {
  const { volume } = created.answer;
  const signal = created.mark.writeSignal();
  if (signal === undefined)
    return { kind: 'later', reason: 'the driver answered too late to write the volume now' };
  try {
    await deps.cluster.kube.create(volumes, undefined, volume, { signal });
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    return isAlreadyExists(error)
      ? handleExistingVolume(deps, created, volume)
      : handleWriteFailure(deps, created, error);
  }
  return endWritten(deps, created, volume);
}

/** Ends the run of a claim whose PV is written. */
async function endWritten(
  deps: Dependencies,
  created: CreatedVolume,
  volume: NewVolume,
): Promise<Outcome> {
  const { claim, mark, planned, run, startMs, wasLong } = created;
  const { clock, cluster, reports } = deps;
  const { name } = volume.metadata;
  reports.capacity.volumeChanged(volume.spec);
  logSuccess(deps, created, volume);
  const endMs = clock.nowMs();
  reports.counts.countProvisioned(claim, {
    tookMs: endMs - startMs,
    queuedMs: run.queuedMs,
    endMs,
  });
  await releaseRestoredSnapshot(cluster.kube, reports.log, planned.source);
  // A claim that was deleted during a long call gets no event.
  const isGone =
    wasLong &&
    claim !== undefined &&
    (await readClaim(cluster.kube, claim.metadata).catch(() => claim)) === undefined;
  const message = `Successfully provisioned volume ${name}`;
  if (!isGone)
    recordClaimEvent(cluster.events, claim, {
      type: 'Normal',
      reason: 'ProvisioningSucceeded',
      message,
    });
  return finishedByCall(`volume ${name}`, mark, deps);
}

/** Logs the one line about a claim that got its volume. */
function logSuccess(
  { clock, reports }: Dependencies,
  { job, claim, run }: Creation,
  volume: NewVolume,
): void {
  reports.log.info(
    {
      ...logFields(job),
      class: volume.spec.storageClassName,
      volume: volume.metadata.name,
      handle: identityOf(volume)?.id,
      pendingMs: claim && clock.nowMs() - createdAtMs(claim, run.queuedMs),
      runs: run.count,
    },
    'volume provisioned',
  );
}

function handleWriteFailure(
  deps: Dependencies,
  { claim }: CreatedVolume,
  error: KubeError,
): Outcome {
  const reason =
    'the volume was created, but its PersistentVolume could not be written: ' + error.message;
  // The user can do something about a refusal (a quota, say), but not about a server that is down.
  if (error.code >= 400 && error.code < 500 && error.code !== 429)
    reportProvisioningFailed(deps.cluster.events, claim, reason);
  return { kind: 'retry', reason };
}

/** Handles a PV of this name that exists already: it is this claim's if it has the same handle.
 * Another handle is for an operator to compare: nothing is deleted. */
async function handleExistingVolume(
  deps: Dependencies,
  created: CreatedVolume,
  volume: NewVolume,
): Promise<Outcome> {
  const { kube, events } = deps.cluster;
  const { answer, claim, job } = created;
  const { name } = volume.metadata;
  const existing = await kube.get<Volume>(volumes, { name });
  if (existing === undefined || existing.metadata.deletionTimestamp !== undefined)
    return {
      kind: 'later',
      reason: `volume ${name} is being deleted; it is written again when it is gone`,
    };
  if (existing.spec.claimRef?.uid !== job.uid) {
    const reason =
      `volume ${name} exists already and belongs to another claim; ` +
      'delete that PersistentVolume, or this claim';
    reportProvisioningFailed(events, claim, reason);
    return { kind: 'retry', reason };
  }
  if (isSameVolume(existing, volume)) return endWritten(deps, created, volume);
  const stored = identityOf(existing)?.id ?? 'another volume';
  const reason =
    `the driver answered with volume ${answer.handle}, but PersistentVolume ${name} names ` +
    `${stored}; compare the two in the storage: if they are two volumes, delete the one that ` +
    `nobody uses; then run: sutler forget ${job.uid} ` +
    `--driver-name=${deps.driver.facts().name} --why=REASON`;
  reportProvisioningFailed(events, claim, reason);
  const { resourceVersion: seen } = existing.metadata;
  return { kind: 'parked', reason, until: [{ resource: volumes.plural, name, seen }] };
}
